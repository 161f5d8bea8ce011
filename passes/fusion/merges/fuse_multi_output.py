"""`fuse-multi-output`: elementwise groups that read the same values, or each other's, become one with several results.

The groups are formed already, so no product, norm or chain loses an op to another group; only whole groups join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from aicf.dialects import logical
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_kernels import accumulates_of
from aicf.dialects.emit_updates import is_update
from aicf.dialects.kinds import EPILOGUES
from aicf.dialects.traits import IndexedRead
from aicf.dialects.types import byte_count, tensor_info
from aicf.passes.bodies.outlining import id_of, name_of
from aicf.passes.bodies.products import AnyProduct
from aicf.passes.bodies.workload import target_of, workload_of
from aicf.passes.fusion.candidates import MEMBER_LIMIT, REFUSAL_LIMIT
from aicf.passes.fusion.forming import FusionContext, fusion_contexts, refusal
from aicf.passes.fusion.merges.group_loops import NAMED, alone_us, is_loops, is_named
from aicf.passes.fusion.merges.merge import Merge, members, window
from aicf.passes.fusion.profitability import LIST_THEM, SAME_TIME, slower
from aicf.passes.logical.saved_values import is_always_in_memory
from aicf.passes.support.identity import op_id
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.works_on import GROUPS
from aicf.policies.kernel_policy import BATCH_INVARIANT, is_meant

_RESULTS = 4
"""Most results of a group with an element for each point. With more, each thread writes in so many places that what it
saves of one read is lost again. Sums of rows and of columns are no such results."""

_OPERANDS = 16
"""Most operands of a group with several results: an address and a vector of each are in registers at once."""

_NEGLIGIBLE = 1000
"""How many times the bytes that are kept longer those that a group reads must be, for memory not to count."""

_WINDOW = 64
"""How many ops after a group are searched for others. Farther on, what is kept for them costs more memory than a read,
and a search of the whole program would take time that grows with its square."""


@dataclass(frozen=True)
class FuseMultiOutputPass(ModulePass):
    """Joins groups of pointwise ops, reductions and running sums of one iteration space, two at a time.

    Two are joined where the later reads the earlier (a residual sum that is kept, and the norm of it), or where both
    read a value of that space (an activation and its derivative; a maximum and where it is), if a kernel takes them
    together and is predicted to take no longer than the two, on every target. What others read of both is a result,
    of the whole space or one for each row. Groups stay two where a third reads the one and feeds the other.

    A product takes in one pointwise group that reads it where its own result is read elsewhere too: an activation whose
    argument is kept for the backward pass. A product and the sum of one of its operands are joined, whichever comes
    first: the gradients of a weight and of the bias beside it.
    """

    name = "fuse-multi-output"
    works_on = GROUPS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for context in fusion_contexts(op, target_of(op), grouped=True):
            _Joiner(context).run()


@dataclass(frozen=True)
class _Gain:
    """What came of joining groups.

    Args:
        reasons: Why they were joined.
        saved: Bytes that move less.
        unfused_us, fused_us: Predicted microseconds of what was joined, apart and as one.
    """

    reasons: tuple[str, ...]
    saved: int
    unfused_us: float
    fused_us: float

    @property
    def figures(self) -> Mapping[str, Attribute]:
        """For the ledger."""
        times = {"unfused_us": self.unfused_us, "fused_us": self.fused_us}
        figures = {name: microseconds(us) for name, us in times.items()}
        return {"saved_bytes": IntegerAttr(self.saved, i64), **figures}


@dataclass
class _Joiner:
    """The joining of the groups of one function."""

    context: FusionContext
    points: dict[GroupOp, int] = field(default_factory=dict[GroupOp, int])
    """Of groups that were looked at: the points of their iteration space, 0 if they are not elementwise."""
    times: dict[GroupOp, float] = field(default_factory=dict[GroupOp, float])
    gains: dict[GroupOp, _Gain] = field(default_factory=dict[GroupOp, _Gain])
    """Of the groups that were joined."""
    refused: dict[GroupOp, dict[str, str]] = field(default_factory=dict[GroupOp, dict[str, str]])
    """Why later groups did not join, by their ops."""
    freed: set[str] = field(default_factory=set[str])
    """What parts were called and no group is."""

    def run(self) -> None:
        """Joins what may be joined, once in text order, again where a policy lists groups: their parts may be met in
        an order in which the first two of them alone have no kernel."""
        while self._sweep() and self.context.policy.groups:
            pass
        self._rename()
        for group in self.context.function.body.block.ops:
            if isinstance(group, GroupOp):
                self._record(group)

    def _sweep(self) -> bool:
        """Lets each group take in later ones as long as there is one to take; whether one did."""
        joined = False
        for op in list(self.context.function.body.block.ops):
            if isinstance(op, GroupOp) and op.parent is not None:
                group: GroupOp = op
                while (merge := self._next(group)) is not None:
                    group, joined = self._join(merge), True
        return joined

    def _join(self, merge: Merge) -> GroupOp:
        gains = [gain for part in merge.parts if (gain := self.gains.pop(part, None)) is not None]
        reasons = dict.fromkeys((*(reason for gain in gains for reason in gain.reasons), _why(merge)))
        saved = sum(gain.saved for gain in gains) + _saved_bytes(merge)
        apart = sum(self._us(part) for part in merge.parts)
        apart += sum(gain.unfused_us - gain.fused_us for gain in gains)
        whole = self.context.profitability(merge.plan).fused_us
        group = merge.form()
        self.freed.update(part.id.data for part in merge.parts if part.id != group.id)
        self.times[group] = whole
        self.gains[group] = _Gain(tuple(reasons), saved, apart, whole)
        return group

    def _rename(self) -> None:
        """Calls groups by their sources where a part had the name that is of a group of another name now: names follow
        from the groups, not from the way to them."""
        for group in self.context.function.body.block.ops if self.freed else ():
            if not isinstance(group, GroupOp) or group.kernel is not None:
                continue
            inside = members(group)
            if inside and group.id.data == op_id(inside[0]):
                name = self.context.group_id(inside, [group.id.data])
                if name in self.freed:
                    self.context.rename(group, name)

    def _next(self, group: GroupOp) -> Merge | None:
        """The first later group that may be joined, those that read `group` before others; notes why not others."""
        refused = self.refused[group] = {}
        for merge in self._candidates(group):
            if (reason := self._refusal(merge)) is None:
                return merge
            if len(refused) < REFUSAL_LIMIT and len(merge.results) > 1:
                refused[" + ".join(map(id_of, members(merge.second)))] = reason
        return None

    def _candidates(self, group: GroupOp) -> Iterator[Merge]:
        if _is_product(group):
            yield from self._after_product(group)
        yield from self._beside_product(group)
        if not self._points(group):
            return
        siblings: list[Merge] = []
        readers: list[Merge] = []
        shared = {value for value in group.ins if self._is_full(value, group)}
        for op, reads, late in _later(group):
            if self._points(op):
                both = (value for value in op.operands if value in shared)
                if reads:
                    readers.append(Merge(group, op, late, self.context))
                elif any(self._is_full(value, op) for value in both):
                    siblings.append(Merge(group, op, late, self.context))
        yield from readers
        yield from siblings

    def _after_product(self, product: GroupOp) -> Iterator[Merge]:
        """The product with each pointwise group that reads it, where others read it too."""
        (result,) = product.results
        for op, reads, late in _later(product):
            if reads and self._is_full(result, op) and _is_pointwise(op):
                merge = Merge(product, op, late, self.context)
                if len(merge.results) == 2:
                    yield merge

    def _beside_product(self, group: GroupOp) -> Iterator[Merge]:
        """The product with each sum of one of its operands, or the sum with each such product."""
        first_is_sum = _is_sum(group)
        if not first_is_sum and not _is_product(group):
            return
        for op, reads, late in _later(group):
            fits = _is_product(op) if first_is_sum else _is_sum(op)
            if fits and not reads and not set(op.ins).isdisjoint(group.ins):
                yield Merge(group, op, late, self.context)

    def _points(self, group: GroupOp) -> int:
        if group not in self.points:
            self.points[group] = _points_of(group)
        return self.points[group]

    def _is_full(self, value: SSAValue, group: GroupOp) -> bool:
        """Whether a value has an element for each point of a group."""
        return tensor_info(value.type).elements == self._points(group)

    # Why two groups stay two

    def _refusal(self, merge: Merge) -> str | None:
        listed = self.context.are_listed(merge.identified)
        against = (
            self._against_policy(merge, listed),
            self._against_order(merge),
            None if listed else self._against_size(merge),
            None if listed else _against_memory(merge),
            None if listed else _against_width(merge),
        )
        return next((reason for reason in against if reason is not None), None) or self._against_kernels(
            merge, listed
        )

    def _against_policy(self, merge: Merge, listed: bool) -> str | None:
        policy = self.context.policy
        if listed:
            return None
        if not self.context.may_be_one(merge.identified):
            return self.context.why_not_fusible(merge.identified)
        fusion = policy.fusion
        if not (
            fusion.elementwise and fusion.multi_output and (fusion.epilogue or self._points(merge.first))
        ):
            return (
                "fusion into several results is off by policy (fusion: elementwise, multi_output, epilogue)"
            )
        if policy.determinism == BATCH_INVARIANT and not _always_pays(merge):
            return f"results may not depend on the batch (determinism), and whether this fusion pays does; {LIST_THEM}"
        return None

    def _against_order(self, merge: Merge) -> str | None:
        if (through := merge.through) is None:
            return None
        return (
            f"it also reads '{name_of(through)}', which reads the first: fused, they would wait for "
            f"'{name_of(through)}', and it for them"
        )

    def _against_size(self, merge: Merge) -> str | None:
        points = max(self._points(merge.first), self._points(merge.second))
        if (count := sum(tensor_info(value.type).elements == points for value in merge.results)) > _RESULTS:
            return f"fused, they have {count} results with other consumers, more than {_RESULTS}; {LIST_THEM}"
        if (count := len(merge.operands)) > _OPERANDS:
            return f"fused into several results, they read {count} values, more than {_OPERANDS}; {LIST_THEM}"
        if (count := len(merge.members)) > MEMBER_LIMIT:
            return f"fused, they are {count} ops, more than {MEMBER_LIMIT}; {LIST_THEM}"
        return None

    def _against_kernels(self, merge: Merge, listed: bool) -> str | None:
        """The reasons of the kernels, or that the two groups are predicted to take less time."""
        if (reason := refusal(merge.plan, self.context, _kinds_of(merge))) is not None:
            return reason
        if (reason := self.context.profitability(merge.plan).no_code) is not None:
            return reason
        if listed:
            return None
        if (lost := self._named_by_policy(merge)) is not None:
            return NAMED.format(lost)
        if self.context.policy.determinism == BATCH_INVARIANT:
            return None  # times depend on the batch; what pays whatever it is holds no product, of which more is asked
        whole = self.context.profitability(merge.plan).fused_us
        apart = sum(self._us(part) for part in merge.parts)
        if self._is_for_some(merge) and whole == self._us(merge.first) == self._us(merge.second):
            # So does `reference`, whose groups a policy takes to targets that have no such kernel.
            return f"predicted {whole:.3g} us for each and for both, which says nothing of what pays; {LIST_THEM}"
        if (pinned := self._kernel_of_kind(merge)) is not None:
            return f"the policy pins kernel {pinned} for products of its kind, and that cannot run them fused"
        if (library := self._library_of_kind(merge)) is not None:
            return f"the policy prefers {library} for products, and that cannot run them fused"
        return None if whole <= apart * SAME_TIME else slower(whole, apart)

    def _is_for_some(self, merge: Merge) -> bool:
        """Whether only some targets have kernels for what two groups would be: a product and something else, or sums of
        columns beside sums of rows."""
        code = self.context.work(merge.plan).work.code
        sums = code is not None and any(accumulates_of(phase.body.block.ops) for phase in code.phases)
        return sums or _product_of(merge) is not None

    def _kernel_of_kind(self, merge: Merge) -> str | None:
        """The kernel that the policy wants for products of the kind of a part, if it does not run the whole."""
        if (product := _product_of(merge)) is None:
            return None
        kernel = self.context.policy.kernels.get(workload_of(product).work.kind)
        legal = {each.id for each in self.context.profitability(merge.plan).legal}
        return None if kernel in legal else kernel

    def _library_of_kind(self, merge: Merge) -> str | None:
        """The library that the policy wants for products of the kind of a part, if it does not run the whole."""
        if (product := _product_of(merge)) is None:
            return None
        library = self.context.policy.library_for(workload_of(product).work.kind)
        legal = self.context.profitability(merge.plan).legal
        runs = library is None or any(is_meant(library, kernel.library) for kernel in legal)
        return None if runs else library

    def _named_by_policy(self, merge: Merge) -> str | None:
        """A part whose kernel the policy pins, and whose name the whole would not have."""
        lost = (part.id.data for part in merge.parts if part.id.data != merge.plan.id)
        return next((id_ for id_ in lost if is_named(id_, self.context.policy)), None)

    def _us(self, group: GroupOp) -> float:
        """As `alone_us`, worked out once."""
        if group not in self.times:
            self.times[group] = alone_us(group, self.context)
        return self.times[group]

    def _record(self, group: GroupOp) -> None:
        """Writes to the ledger what a group became and what did not join it."""
        gain, refused = self.gains.get(group), self.refused.get(group, {})
        subjects = [group.id.data, *map(id_of, members(group))]
        if gain is not None:
            choice = f"one kernel for {len(subjects) - 1} ops, {len(group.results)} results"
            because, cost = "; ".join(gain.reasons), gain.figures
        elif refused:
            choice, because, cost = "not fused", "no other instruction can be fused with it", None
        else:
            return
        name = FuseMultiOutputPass.name
        record_decision(self.context.module, name, subjects, choice, because, refused, cost)


def _against_memory(merge: Merge) -> str | None:
    """That the second group would run long before it is due: what it gives would be kept while products run.

    So no group of a training step's forward part takes in what the backward part computes of the same values. Sums of
    columns are next to nothing beside what they are sums of.
    """
    between = next(
        (op for op in merge.late if any(isinstance(inner, AnyProduct) for inner in op.walk())), None
    )
    if between is None:
        return None
    held = {value for value in merge.second.results if value in merge.results}
    freed = {
        value
        for value in merge.second.ins
        if value.owner is not merge.first and all(use.operation in merge.parts for use in value.uses)
    }
    more = _arena_bytes(held) - _arena_bytes(freed)
    return (
        f"its results would be kept in memory while '{name_of(between)}' runs, {more} bytes more; {LIST_THEM}"
        if more * _NEGLIGIBLE > _bytes(merge.operands)
        else None
    )


def _against_width(merge: Merge) -> str | None:
    """That a product or convolution would write a cast to wider elements, which loops that read it can do themselves:
    `sink-casts` has them do so."""
    casts = members(merge.second)
    multiplies = any(op.has_trait(logical.Contraction) for op in members(merge.first))
    if not multiplies or len(casts) != 1 or not isinstance(cast := casts[0], logical.CastOp):
        return None
    widens = byte_count(cast.result.type) > byte_count(cast.operand.type)
    if not widens or not all(map(is_loops, _readers_of(merge.second))):
        return None
    return "its consumers can widen what is read of it, and narrow values take less memory"


def _arena_bytes(values: Iterable[SSAValue]) -> int:
    """Bytes of what the program has no other memory for."""
    return _bytes(value for value in values if not is_always_in_memory(value))


def _later(group: GroupOp) -> Iterator[tuple[GroupOp, bool, tuple[Operation, ...]]]:
    """The groups after `group`: whether they read it, and the ops between that read it, maybe through others."""
    late: list[Operation] = []
    readers = _readers_of(group)
    late_readers = set(readers)
    for op in window(group, _WINDOW):
        if isinstance(op, GroupOp):
            yield op, op in readers, tuple(late)
        if op in late_readers:
            late.append(op)
            late_readers |= _readers_of(op)


def _readers_of(op: Operation) -> set[Operation]:
    return {use.operation for result in op.results for use in result.uses}


def _is_pointwise(group: GroupOp) -> bool:
    """Whether the scalar program of an elementwise group has no reductions."""
    code = workload_of(group).work.code
    return code is not None and not code.reduce_sizes


def _is_product(group: GroupOp) -> bool:
    """Whether a group, none that came with a kernel, is one product with one result."""
    if group.kernel is not None or len(group.results) != 1:
        return False
    return workload_of(group).work.kind in ("gemm", *EPILOGUES) and _are_identified(group)


def _always_pays(merge: Merge) -> bool:
    """Whether the first only moves or casts elements for the second, which combines none: no bit tells whether they are
    fused, and nothing that is kept or computed twice could make it a loss in some batch."""
    moves = all(op.has_trait(IndexedRead) or isinstance(op, logical.CastOp) for op in members(merge.first))
    alone = not merge.late and set(merge.results) <= set(merge.second.results)
    return moves and alone and _is_pointwise(merge.second)


def _is_sum(group: GroupOp) -> bool:
    """Whether a group, none that came with a kernel, is one sum."""
    return group.kernel is None and workload_of(group).work.kind == "reduce_sum" and _are_identified(group)


def _are_identified(group: GroupOp) -> bool:
    """Whether all that a group computes has an id."""
    return all(op_id(op) is not None for op in members(group))


def _product_of(merge: Merge) -> GroupOp | None:
    """The product among the parts, None if both are loops."""
    return next((part for part in merge.parts if _is_product(part)), None)


def _kinds_of(merge: Merge) -> tuple[str, ...] | None:
    """What a product and something else may become; None for loops, whose kind says nothing."""
    if _product_of(merge) is None:
        return None
    return ("gemm_sums",) if any(map(_is_sum, merge.parts)) else EPILOGUES


def _why(merge: Merge) -> str:
    """What the two groups gain as one."""
    if any(value.owner is merge.first for value in merge.second.ins):
        return "what is kept of earlier ops is in registers when later ops read it"
    return "what several ops read is read once"


def _points_of(group: GroupOp) -> int:
    """Points of the iteration space of an elementwise group, 0 of any other: of products, of what has no loops or one
    for each tensor, and of groups from elsewhere that have their kernel already, or ops without ids."""
    work = workload_of(group).work
    if group.kernel is not None or any(op_id(op) is None for op in members(group)):
        return 0
    if work.code is None or is_update(work.code):
        return 0
    if any(isinstance(op, AnyProduct) for op in work.body.ops):
        return 0
    return prod((*work.code.parallel_sizes, *work.code.reduce_sizes))


def _saved_bytes(merge: Merge) -> int:
    """Bytes that the two groups move and one group does not."""
    apart = sum(_bytes((*part.ins, *part.results)) for part in merge.parts)
    return apart - _bytes((*merge.operands, *merge.results))


def _bytes(values: Iterable[SSAValue]) -> int:
    return sum(byte_count(value.type) for value in values)
