"""`select-kernels`: each group and instruction gets the kernel that runs it, and the record of all its launch needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Float64Type, FloatAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass

from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.backends.registry import get_kernels, libraries_by_family
from aicf.dialects.emit import GroupOp, ProgramOp, ResolvedOp
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.dialects.json_values import json_value
from aicf.dialects.kinds import KINDS, family_of
from aicf.errors import BackendUnavailable, PolicyError, UnsupportedOp
from aicf.passes.bodies.structure import Structure, structure_of_workload
from aicf.passes.bodies.workload import UNMEASURED, GroupWorkload, legal_kernels, target_of, workload_of
from aicf.passes.fusion.pinned_groups import check_formed
from aicf.passes.kernels.instructions import Filler
from aicf.passes.kernels.measured import Measurements, Variant
from aicf.passes.kernels.staging import staging_us
from aicf.passes.support.identity import position_of
from aicf.passes.support.interface import functions
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.policy import policy_of, with_stems, without_bucket
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import until_phase
from aicf.policies.kernel_policy import EXPECTED_US, KernelPolicy, is_meant
from aicf.policies.tuning_table import MeasuredWorkload

TUNING_KEY = "tuning_key"
"""Figure of a decision that says which work of the tuning table it read."""

FREE_US = "free_us"
"""Figure of a decision about batch-invariant work: predicted microseconds of the choice without that requirement."""

_ALGORITHM = "algorithm"
"""Entry of the record of kernels that have several, see `Kernel.algorithms`."""

_ONE_THREAD = IntegerAttr(1, i64)

Refuse = Callable[[KernelAttr], str | None]
"""Why a legal kernel with this record cannot be taken where it would stand; None if it can."""


@dataclass(frozen=True)
class SelectKernelsPass(ModulePass):
    """Chooses among the legal kernels of each group and of each instruction that is open: policy first, then the
    measured time, then, where nothing was measured, the predicted one. Where the policy wants results that no batch
    changes, only kernels that combine terms in one order are left to choose from.

    A family's library that the policy prefers runs what it can of that family. Where its record lacks what only the
    device knows, and nothing was measured, the device is queried.

    `tuning` is a table that `aicf tune` wrote (a path or inline JSON); it must have been measured for the module's
    target. Where it has rows, the best measured variant of a kernel is taken: cold or warm, as the policy says. Ties
    go to the deterministic kernel, then to the simpler one. What has a kernel keeps it. The ledger gets the choice,
    its time, and the reason against every other kernel and variant. An instruction of a program that is not final and
    states no body gets the body of its kind; one without a kernel gets a record, with prepared weights and workspace
    as it asks for them.
    """

    name = "select-kernels"
    works_on = until_phase("final", "emit.group")

    tuning: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = target_of(op)
        measured = Measurements.read(self.tuning, target)
        chooser = _Chooser(op, target, policy_of(op), measured)
        _check_policy(op, chooser.policy)
        if measured.table is not None:
            header = measured.table.header
            record_decision(op, self.name, ["module"], f"times measured on {header.device}", "option tuning")
        for function in functions(op):
            chooser.choose_for_groups(function)
        chooser.choose_for_instructions(
            [program for program in programs(op) if program.phase.data != "final"]
        )


def _check_policy(module: ModuleOp, policy: KernelPolicy) -> None:
    """Raises PolicyError for a kernel or library that the target has not (another one may have been set since), and
    for a key of `kernels` that is no group or instruction of the module and no kind."""
    backend = target_of(module).backend.data
    policy.check_kernels(get_kernels(backend), backend)
    policy.check_libraries(libraries_by_family(backend), backend)
    if policy.kernels or policy.records:
        groups = [op.id.data for op in module.walk() if isinstance(op, GroupOp)]
        instructions = [op.instruction.data for program in programs(module) for op in program.instructions]
        policy.check_kernel_keys(with_stems([*groups, *instructions]))


@dataclass(frozen=True)
class _Option:
    """A variant that could run a piece of work, and how long it takes, measured or predicted.

    Args:
        own_us: Of the kernel.
        copies_us: Of copies between callers' memory and where the kernel reads and writes, predicted.
    """

    variant: Variant
    own_us: float
    copies_us: float

    @property
    def us(self) -> float:
        """All of it."""
        return self.own_us + self.copies_us

    @property
    def is_measured(self) -> bool:
        return self.variant.row is not None


@dataclass(frozen=True)
class _Weighed:
    """What could run a piece of work, as far as that follows from the work and from what the policy says of it.

    Args:
        measured: What the tuning table has of it.
        rejected: The reason against each kernel that may not be taken.
        offers: Of each other kernel the reason against some variants, and the rest with their microseconds.
        threads_us: Predicted microseconds by number of threads, of kernels that weighed it.
        free: The figure of what batch-invariant work would take if it were none.
        queried: Kernels whose records the device completed, without a measurement.
    """

    measured: MeasuredWorkload | None
    rejected: Mapping[str, str]
    offers: Sequence[tuple[Mapping[str, str], Sequence[tuple[Variant, float]]]]
    threads_us: Mapping[str, Mapping[int, float]]
    free: Mapping[str, Attribute]
    queried: Collection[str]


@dataclass(frozen=True)
class _Chooser:
    module: ModuleOp
    target: TargetAttr
    policy: KernelPolicy
    measured: Measurements
    known: dict[Structure, _Weighed] = field(default_factory=dict[Structure, _Weighed])
    """Of the work so far that something else was said or requested of."""

    def choose_for_groups(self, function: func.FuncOp) -> None:
        """Gives each group of a function its kernel record."""
        groups = [op for op in function.body.block.ops if isinstance(op, GroupOp)]
        check_formed(self.policy, groups)
        for group in groups:
            if group.kernel is None:
                what = f"group '{group.id.data}'"
                way_out = "split the group or choose another target"
                kernel, cost = self._choose(workload_of(group), group, what, way_out)
                group.properties |= {"kernel": kernel, "expected_us": cost}

    def choose_for_instructions(self, open_programs: Sequence[ProgramOp]) -> None:
        """Completes the instructions of programs that are not final."""
        filler = Filler(self.module, self.target, SelectKernelsPass.name)
        for program in open_programs:
            for instruction in program.instructions:
                filler.give_body(program, instruction)
                if instruction.kernel is None:
                    self._choose_for(program, instruction, filler)
        filler.finish(open_programs)

    def _choose_for(self, program: ProgramOp, op: ResolvedOp, filler: Filler) -> None:
        work = filler.work(program, op)
        refuse, what = filler.refuse_constrained(op), f"instruction '{op.instruction.data}'"
        parts = KINDS[op.kind.data].parts or "write it as other instructions"
        kernel, cost = self._choose(work, op, what, f"{parts}, or choose another target", refuse)
        filler.give_kernel(program, op, work.work, kernel, cost)

    def _choose(
        self, group_work: GroupWorkload, op: Operation, what: str, way_out: str, refuse: Refuse | None = None
    ) -> tuple[KernelAttr, FloatAttr[Float64Type]]:
        """The record of the kernel that runs the work of `op`, and its microseconds; writes the ledger."""
        group_work = group_work.under(self.policy)
        work = group_work.work
        weighed = self._weighed(group_work)
        options, rejected = self._options(weighed, work, op, refuse)
        if not options and (why := self._why_no_record(work, rejected)) is not None:
            raise PolicyError(why)
        if not options:
            reasons = "; ".join(f"{kernel}: {why}" for kernel, why in rejected.items())
            raise UnsupportedOp(
                f"no kernel of target {self.target.backend.data} runs {what} of kind {work.kind}: "
                f"{reasons or 'none has this kind'}; {way_out}",
                location=position_of(op),
            )
        best, because = _best(work, options, self.policy, rejected, self.target)
        if best.variant.kernel.id in weighed.queried and not best.is_measured:
            because += "; what only the device knows is what its library proposed"
        for option in options:
            if option is not best:
                rejected[option.variant.label] = _not_wanted(option, best, work, self.policy) or _against(
                    option, best
                )
        chosen = best.variant
        rejected |= _other_threads(chosen, weighed)
        rejected |= chosen.kernel.other_algorithms(work, chosen.record.record.data, self.target)
        cost = microseconds(best.own_us)
        record_decision(
            self.module,
            SelectKernelsPass.name,
            [work.id],
            chosen.kernel.id,
            because,
            rejected,
            {"expected_us": cost, **_measured_costs(chosen, weighed.measured), **weighed.free},
        )
        return chosen.record, cost

    def _options(
        self, weighed: _Weighed, work: Workload, op: Operation, refuse: Refuse | None
    ) -> tuple[list[_Option], dict[str, str]]:
        """Every variant that may be taken for the work of `op`, and the reason against each that may not."""
        rejected = dict(weighed.rejected)
        options: list[_Option] = []
        for reasons, variants in weighed.offers:
            rejected |= reasons
            for variant, us in variants:
                why = None if refuse is None else refuse(variant.record)
                if why is None:
                    copies = staging_us(variant.record, work, op, self.target)
                    options.append(_Option(variant, us, copies))
                else:
                    rejected[variant.label] = why
        return options, rejected

    def _weighed(self, group_work: GroupWorkload) -> _Weighed:
        """What could run a piece of work, worked out once for all that is alike and called alike by the policy."""
        work = group_work.work
        called = (_name_in(self.policy.kernels, work), _name_in(self.policy.records, work))
        key = (*called, *structure_of_workload(work))
        if key not in self.known:
            self.known[key] = self._weigh(group_work)
        return self.known[key]

    def _weigh(self, group_work: GroupWorkload) -> _Weighed:
        work = group_work.work
        measured = self.measured.find(work)
        rows = () if measured is None else measured.rows
        known = {row.kernel for row in rows} | self._completed_by_policy(work)
        queried = self._kernels_to_query(work, known)
        forbidden = frozenset(self.policy.forbid)
        legal, rejected = legal_kernels(group_work, self.target, forbidden, known | queried)
        legal, rejected, proposed = self._query_device(legal, rejected, queried, work)
        legal, rejected = _deterministic(legal, rejected, self.policy)
        legal, rejected = self._in_one_order(legal, rejected, work)
        offers: list[tuple[Mapping[str, str], Sequence[tuple[Variant, float]]]] = []
        for kernel in legal:
            variants, reasons = self._variants(kernel, work, measured, proposed.get(kernel.id, {}))
            offers.append((reasons, [(variant, self._us(variant, work)) for variant in variants]))
        threads = _threads_us(legal, work, self.target)
        free = self._free_choice(group_work) if offers else {}
        return _Weighed(measured, rejected, offers, threads, free, frozenset(proposed))

    def _kernels_to_query(self, work: Workload, known: Collection[str]) -> frozenset[str]:
        """The kernels that the policy wants for a work and that nobody has measured: the device may know them."""
        pinned = _stated(self.policy.kernels, work)
        wanted = self.policy.library_for(work.kind)
        return frozenset(
            kernel.id
            for kernel in get_kernels(self.target.backend.data).values()
            if kernel.device_fields and kernel.id not in known
            if (is_meant(wanted, kernel.library) if pinned is None else kernel.id == pinned[1])
        )

    def _query_device(
        self,
        legal: Sequence[AnyKernel],
        rejected: Mapping[str, str],
        queried: Collection[str],
        work: Workload,
    ) -> tuple[list[AnyKernel], dict[str, str], dict[str, Record]]:
        """The legal kernels without those that the device had no answer for, and its answers about the others."""
        reasons, proposed = dict(rejected), dict[str, Record]()
        for kernel in legal:
            if kernel.id in queried:
                try:
                    proposed[kernel.id] = kernel.propose_on_device(work, self.target)
                except BackendUnavailable as error:
                    reasons[kernel.id] = f"{UNMEASURED}; and the device cannot be queried: {error.message}"
        return [kernel for kernel in legal if kernel.id not in reasons], reasons, proposed

    def _free_choice(self, group_work: GroupWorkload) -> dict[str, Attribute]:
        """Of batch-invariant work, the predicted time of what would have been chosen freely: what the class costs."""
        if not group_work.work.batch_invariant:
            return {}
        free = replace(group_work.work, batch_invariant=False)
        legal, rejected = legal_kernels(
            replace(group_work, work=free), self.target, frozenset(self.policy.forbid)
        )
        legal, _ = _deterministic(legal, rejected, self.policy)
        return {FREE_US: microseconds(min(kernel.cost_us(free, self.target) for kernel in legal))}

    def _in_one_order(
        self, legal: Sequence[AnyKernel], rejected: dict[str, str], work: Workload
    ) -> tuple[list[AnyKernel], dict[str, str]]:
        """Of kernels for batch-invariant work those that combine terms in one order: that of the pinned kernel, else of
        the first that the policy prefers, else of the first in the backend's table. Among these the predicted times
        choose: they all give the same bits."""
        if not (work.batch_invariant and legal):
            return list(legal), rejected
        orders = {kernel.id: kernel.fixed_order(work, self.target) for kernel in legal}
        pinned = _stated(self.policy.kernels, work)
        wanted = self.policy.library_for(work.kind)
        preferred = [kernel.id for kernel in legal if is_meant(wanted, kernel.library)]
        first = pinned[1] if pinned is not None and pinned[1] in orders else [*preferred, *orders][0]
        others = {
            kernel: f"it combines in another order ({order}) than {first} ({orders[first]})"
            for kernel, order in orders.items()
            if order != orders[first]
        }
        return [kernel for kernel in legal if kernel.id not in others], {**rejected, **others}

    def _variants(
        self,
        kernel: AnyKernel,
        work: Workload,
        measured: MeasuredWorkload | None,
        proposed: Mapping[str, Attribute],
    ) -> tuple[list[Variant], dict[str, str]]:
        """The variants of a legal kernel that have what the policy says of their record.

        Args:
            measured: What was found of the work.
            proposed: What the device proposes for entries that only it can give.
        """
        wanted = _stated(self.policy.records, work)
        if wanted is None:
            return self._free_variants(kernel, work, measured, proposed)
        key, stated = wanted
        entries = {name: value for name, value in stated.items() if name != EXPECTED_US}
        pinned = _stated(self.policy.kernels, work)
        if pinned is not None and kernel.id != pinned[1]:
            return [], {kernel.id: "the policy pins another kernel with its record"}
        variants, reasons = self.measured.stating(entries, kernel, work, measured, proposed)
        if not variants:
            reasons[kernel.id] = self.measured.why_none_states(f"records.{key}", entries, kernel, work)
        return variants, reasons

    def _free_variants(
        self,
        kernel: AnyKernel,
        work: Workload,
        measured: MeasuredWorkload | None,
        proposed: Mapping[str, Attribute],
    ) -> tuple[list[Variant], dict[str, str]]:
        """The variants of a legal kernel: those of the algorithm that the policy prefers, if there are such."""
        library = self.policy.library_for(work.kind)
        if library in kernel.algorithms:
            variants, reasons = self.measured.stating({_ALGORITHM: library}, kernel, work, measured)
            if variants:
                return variants, reasons
        return self.measured.variants(kernel, work, measured, proposed)

    def _why_no_record(self, work: Workload, rejected: Mapping[str, str]) -> str | None:
        """Why no kernel has the record that the policy wants, if it wants one: what is said of the pinned kernel, else
        of all that could run the work."""
        if (wanted := _stated(self.policy.records, work)) is None:
            return None
        path = f"records.{wanted[0]}"
        way_out = f"drop {path} to leave the record to the kernel"
        if (pinned := _stated(self.policy.kernels, work)) is None:
            reasons = [why for why in rejected.values() if why.startswith(path)]
            return "; ".join([*reasons, way_out]) if reasons else None
        key, kernel = pinned
        why = rejected.get(kernel, "it does not run this kind")
        return (
            f"{why}; {way_out}" if why.startswith(path) else f"kernels.{key}: '{kernel}' cannot run it: {why}"
        )

    def _completed_by_policy(self, work: Workload) -> set[str]:
        """The kernel that needs no measurement because the policy states what of its record only a device gives."""
        wanted = _stated(self.policy.records, work)
        pinned = _stated(self.policy.kernels, work)
        kernel = None if pinned is None else get_kernels(self.target.backend.data)[pinned[1]]
        if wanted is None or kernel is None or not kernel.device_fields:
            return set()
        return {kernel.id} if set(kernel.device_fields) <= set(wanted[1]) else set()

    def _us(self, variant: Variant, work: Workload) -> float:
        wanted = _stated(self.policy.records, work)
        if wanted is not None and (us := self.policy.expected_us(wanted[0])) is not None:
            return us
        if variant.row is None:
            return variant.kernel.cost_us(work, self.target)
        return variant.row.timing(self.policy.measurements).median_us


_Stated = TypeVar("_Stated")


def _stated(entries: Mapping[str, _Stated], work: Workload) -> tuple[str, _Stated] | None:
    """What a policy says of a piece of work, and by which name."""
    key = _name_in(entries, work)
    return None if key is None else (key, entries[key])


def _name_in(entries: Collection[str], work: Workload) -> str | None:
    """By which name the entries of a policy have a piece of work: its id, that without the bucket, or its kind."""
    return next((key for key in (work.id, without_bucket(work.id), work.kind) if key in entries), None)


def _measured_costs(chosen: Variant, measured: MeasuredWorkload | None) -> dict[str, Attribute]:
    """Both measured times of the choice, and the key by which the tuning table has the work, if it has it."""
    if measured is None:
        return {}
    costs: dict[str, Attribute] = {}
    if chosen.row is not None:
        for name, timing in (("cold_us", chosen.row.cold), ("warm_us", chosen.row.warm)):
            costs[name] = microseconds(timing.median_us)
    return {**costs, TUNING_KEY: StringAttr(measured.key)}


def _threads_us(
    legal: Sequence[AnyKernel], work: Workload, target: TargetAttr
) -> dict[str, Mapping[int, float]]:
    """Predicted times by number of threads, of kernels that may share the work; none on a target with one thread."""
    if target.facts.data.get("threads") == _ONE_THREAD:
        return {}
    return {kernel.id: kernel.threads_us(work, target) for kernel in legal}


def _other_threads(chosen: Variant, weighed: _Weighed) -> dict[str, str]:
    """The reason against every other number of threads that the chosen kernel weighed."""
    if not (times := weighed.threads_us.get(chosen.kernel.id)):
        return {}
    taken = json_value(chosen.record.record.data["threads"])
    own = times.get(taken) if isinstance(taken, int) else None
    return {
        "1 thread" if count == 1 else f"{count} threads": f"predicted {us:.3g} us, not {own:.3g}"
        for count, us in times.items()
        if own is not None and count != taken
    }


def _against(option: _Option, best: _Option) -> str:
    """The reason against an option that could have been taken."""
    word = "measured" if option.is_measured else "predicted"
    if option.is_measured != best.is_measured:
        return f"unmeasured, {word} {option.us:.3g} us" if best.is_measured else f"{word} {option.us:.3g} us"
    if option.copies_us or best.copies_us:
        return f"{word} {_with_copies(option)}, not {_with_copies(best)}"
    if f"{option.us:.3g}" == f"{best.us:.3g}":
        return (
            f"{word} the same {best.us:.3g} us, and ties go to the deterministic, then to the simpler kernel"
        )
    return f"{word} {option.us:.3g} us, not {best.us:.3g}"


def _with_copies(option: _Option) -> str:
    own = f"{option.own_us:.3g} us"
    return f"{own} and {option.copies_us:.3g} us to copy inputs and outputs" if option.copies_us else own


def _deterministic(
    legal: Sequence[AnyKernel], rejected: dict[str, str], policy: KernelPolicy
) -> tuple[list[AnyKernel], dict[str, str]]:
    if policy.determinism == "any":
        return list(legal), rejected
    kept = [kernel for kernel in legal if kernel.determinism == "bitwise"]
    dropped = {
        k.id: f"its results are {k.determinism}, and the policy wants bitwise (determinism)"
        for k in legal
        if k not in kept
    }
    return kept, {**rejected, **dropped}


def _is_preferred(option: _Option, library: str | None) -> bool:
    """Whether an option is of the library that the policy prefers, or of the algorithm."""
    algorithm = json_value(option.variant.record.record.data.get(_ALGORITHM, StringAttr("")))
    return is_meant(library, option.variant.kernel.library) or (library is not None and library == algorithm)


def _not_wanted(option: _Option, best: _Option, work: Workload, policy: KernelPolicy) -> str | None:
    """The reason against an option that the policy's preference alone speaks against; None if times do, or a pin."""
    library = policy.library_for(work.kind)
    is_lost = _is_preferred(best, library) and not _is_preferred(option, library)
    if not is_lost or _stated(policy.kernels, work) is not None:
        return None
    word = "measured" if option.is_measured else "predicted"
    return f"the policy prefers {library} ({family_of(work.kind)}); {word} {option.us:.3g} us"


def _best(
    work: Workload,
    options: Sequence[_Option],
    policy: KernelPolicy,
    rejected: Mapping[str, str],
    target: TargetAttr,
) -> tuple[_Option, str]:
    """The option that is taken and why: among those of a pinned kernel, of the preferred library or all, among the
    measured ones if any is."""
    if (wanted := _stated(policy.kernels, work)) is not None:
        key, kernel = wanted
        pinned = _pinned(kernel, key, options, rejected)
        return _fastest(pinned), f"policy pins it for '{key}'"
    if (library := policy.library_for(work.kind)) is None:
        return _fastest_and_why(options, policy)
    family = family_of(work.kind)
    if preferred := [option for option in options if _is_preferred(option, library)]:
        return _fastest(preferred), f"policy prefers {library} ({family})"
    best, because = _fastest_and_why(options, policy)
    return best, f"{because}; {family}: {_why_not_by(library, work, target)}"


def _why_not_by(library: str, work: Workload, target: TargetAttr) -> str:
    """Why the library that the policy prefers does not run a piece of work: the ledger has the reasons of its
    kernels."""
    kernels = [kernel for kernel in get_kernels(target.backend.data).values() if work.kind in kernel.kinds]
    if own := [kernel.id for kernel in kernels if is_meant(library, kernel.library)]:
        return f"{library} does not run it, see {', '.join(own)}"
    if any(library in kernel.algorithms for kernel in kernels):
        return f"{library} is not offered for it"
    return f"{library} has no kernel for {work.kind}"


def _fastest_and_why(options: Sequence[_Option], policy: KernelPolicy) -> tuple[_Option, str]:
    best = _fastest(options)
    kernels = {option.variant.kernel.id for option in options}
    row = best.variant.row
    if row is not None:
        reason = "lowest" if len(options) > 1 else "the only legal kernel;"
        variant = f": {row.variant}" if row.variant else ""
        return best, f"{reason} measured time, {policy.measurements}{variant}"
    return best, "the only legal kernel" if len(kernels) == 1 else "lowest predicted time; unmeasured"


def _fastest(options: Sequence[_Option]) -> _Option:
    """The fastest of the measured options, or of all if none is measured."""
    measured = [option for option in options if option.is_measured]
    return min(measured or options, key=_rank)


def _rank(option: _Option) -> tuple[float, bool, int, str]:
    kernel = option.variant.kernel
    return option.us, kernel.determinism != "bitwise", kernel.simplicity, kernel.id


def _pinned(wanted: str, key: str, options: Sequence[_Option], rejected: Mapping[str, str]) -> list[_Option]:
    if found := [option for option in options if option.variant.kernel.id == wanted]:
        return found
    why = rejected.get(wanted, "it does not run this kind" if wanted else "")
    legal = dict.fromkeys(option.variant.kernel.id for option in options)
    raise PolicyError(f"kernels.{key}: '{wanted}' cannot run it: {why}; legal: {', '.join(legal)}")
