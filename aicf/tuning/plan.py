"""What there is to measure for a model, before anything is compiled, and all of it compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf.compilation.record import Options
from aicf.compilation.sources import Model
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import AicfError, PolicyError, quoted
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import target_of
from aicf.passes.kernels.measured import libraries_of
from aicf.passes.support.policy import policy_of
from aicf.policies.kernel_policy import KernelPolicy
from aicf.saving.artifact import toolchain_lock
from aicf.support.arguments import check_function, instance_from
from aicf.support.progress import Step
from aicf.support.whole_numbers import is_whole
from aicf.tuning.candidates import Candidate, candidates, grouped
from aicf.tuning.case_compiler import CaseCompiler
from aicf.tuning.cases import Case, Prepared, Setting
from aicf.tuning.one_instruction import starts_early


@dataclass(frozen=True)
class Plan:
    """What there is to measure for a model.

    Args:
        module: The model as `select-kernels` sees it, which holds the groups of the candidates.
        context: Its xDSL context.
        candidates: Everything that may be measured.
    """

    module: ModuleOp
    context: Context
    candidates: tuple[Candidate, ...]

    @property
    def target(self) -> TargetAttr:
        """What the model is compiled for."""
        return target_of(self.module)

    @property
    def policy(self) -> KernelPolicy:
        """What the user says of kernels."""
        return policy_of(self.module)

    def compiler(self) -> CaseCompiler:
        """Processes that compile the candidates, which are called by their numbers."""
        return CaseCompiler(self.module, self.context, self.candidates)

    def setting(self, compiler: CaseCompiler) -> Setting:
        """What a device has to know, with the neighbour compiled. Raises as `CaseCompiler.case`."""
        target, number = self.target, neighbour_of(self.candidates, self.target, self.policy)
        return Setting(
            target.backend.data,
            target.arch.data,
            target.threads,
            dict(libraries_of(target)),
            dict(toolchain_lock()),
            None if number is None else _compiled(compiler, number),
            any(candidate.kernel.device_fields for candidate in self.candidates),
        )


def plan(model: Model, options: Options, variants: int | None, step: Step) -> Plan:
    """Runs the passes up to `select-kernels` and lists the candidates.

    Args:
        options: Target, policy, dims and threads, as for `compile`.
        variants: Most variants of one kernel on one piece of work; None for all.
        step: Is told what is being done.

    Raises:
        PolicyError: an option or argument is not legal, or the model is an emit program, whose kernels are chosen.
    """
    instance_from(options, Options, PolicyError, "what to compile with", "aicf.compilation.record.Options")
    if variants is not None and not is_whole(variants, 1):
        raise PolicyError(
            f"the most variants of a kernel are {quoted(variants)}; give a whole number, 1 or more"
        )
    check_function(step, PolicyError, "what is told of progress")
    context = make_context()
    module = grouped(model, options, context, step)
    step("listing kernels and their variants")
    return Plan(module, context, tuple(candidates(module, variants)))


def prepare(model: Model, options: Options, variants: int, step: Step) -> Prepared:
    """Compiles every candidate of a model, as many at a time as this machine has cores.

    A variant that does not compile is an error here: a folder of cases has no place for it.

    Raises:
        PolicyError: as `plan`.
        BackendUnavailable: what compiles for the target is missing.
        CaptureError, PlanError: a variant has no code.
    """
    found = plan(model, options, variants, step)
    with found.compiler() as compiler:
        setting = found.setting(compiler)
        cases = tuple(_all(compiler, found.candidates, step))
    return Prepared(
        *(setting.backend, setting.arch, setting.threads, setting.libraries, setting.toolchain),
        cases,
        setting.neighbour,
    )


def _all(compiler: CaseCompiler, found: Sequence[Candidate], step: Step) -> Iterator[Case]:
    compiler.wish(range(len(found)))
    for number, candidate in enumerate(found):
        step(f"compiling {number + 1} of {len(found)}: {candidate.label}")
        yield _compiled(compiler, number)


def _compiled(compiler: CaseCompiler, number: int) -> Case:
    case = compiler.case(number)
    if isinstance(case, AicfError):
        raise case
    return case


def neighbour_of(found: Sequence[Candidate], target: TargetAttr, policy: KernelPolicy) -> int | None:
    """What runs between two runs where instructions may start before their predecessor ends: the number of the cheapest
    instruction of the model whose kernel has no variants, as a normalisation between two products. Two runs of one
    large kernel next to each other would be in each other's way, as instructions of such a model are not. None if the
    model has none: there large kernels do stand next to each other.
    """
    small = [
        (candidate.us(target, policy), number)
        for number, candidate in enumerate(found)
        if not candidate.spec and starts_early(candidate.record)
    ]
    if not small or len({candidate.work.digest for candidate in found}) == 1:
        return None
    return min(small)[1]
