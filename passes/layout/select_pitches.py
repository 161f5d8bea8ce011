"""`select-pitches`: which values have rows that begin at multiples of what kernels copy at once, with gaps between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, OpResult, Region, SSAValue
from xdsl.passes import ModulePass

from aicf.backends.registry import get_kernels
from aicf.dialects import logical
from aicf.dialects.emit import PREPARE, GroupOp, YieldOp
from aicf.dialects.types import element_of, tensor_info
from aicf.errors import PolicyError
from aicf.passes.bodies.buffer_aliasing import alias_of
from aicf.passes.bodies.views import View
from aicf.passes.bodies.workload import (
    GroupWorkload,
    aliased_workload,
    remember_workload,
    target_of,
)
from aicf.passes.fusion.forming import FusionContext, fusion_contexts
from aicf.passes.layout.alias_candidates import least_us, why_not_aliased
from aicf.passes.layout.layout_graph import is_free_to_move, multiplies
from aicf.passes.layout.search import LEAST_GAIN, LEAST_GAIN_US
from aicf.passes.support.identity import derived_id, set_identity
from aicf.passes.support.ledger import microseconds, record_decision
from aicf.passes.support.policy import policy_of, with_stems, without_bucket
from aicf.passes.support.works_on import GROUPS
from aicf.policies.kernel_policy import BATCH_INVARIANT, EVERY_VALUE, PITCHED, ROW_MAJOR

GAP, WITH_GAPS = "gap", "pitched"
"""Suffixes after the id of a group: of the group that fills the gaps, and of the rows together with them."""


@dataclass(frozen=True)
class SelectPitchesPass(ModulePass):
    """Lays results of groups out with rows as long as a multiple of `Kernel.row_bytes`, where that is predicted to pay.

    Kernels that copy pieces of rows at once run only, or run faster, if every row begins at such a multiple: 50,257
    columns of bf16 do not. Candidates are results with other rows that groups alone read, if need be by reshapes that
    keep the rows, where a matrix product gives or reads them. Such a value becomes a part of a concatenation outside of
    groups, and the gaps, which nobody reads, the other part: instructions write and read the value with strides. An
    operand of the same type that its group might overwrite is laid out likewise, so that it still may. The policy may
    say `pitched` or `row_major` of a group.

    Raises PolicyError for a group that is no candidate, or whose kernels do not take what the policy says.
    """

    name = "select-pitches"
    works_on = GROUPS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        target = target_of(op)
        row_bytes = max(kernel.row_bytes for kernel in get_kernels(target.backend.data).values())
        deciding = [
            _Deciding(context, row_bytes)
            for context in fusion_contexts(op, target, grouped=True)
            if context.function.sym_name.data != PREPARE  # it runs once
        ]
        for each in deciding:
            each.take_in_reshapes()
        candidates = [value.op for each in deciding for value in each.candidates()]
        names = with_stems(group.id.data for group in candidates if isinstance(group, GroupOp))
        policy_of(op).check_pitch_keys(names)
        for each in deciding:
            each.run()


@dataclass(frozen=True)
class _Pitch:
    """A value with gaps between its rows.

    Args:
        value: It, a result of a group.
        row: Elements from where one row begins to where the next one does.
    """

    value: OpResult
    row: int

    @property
    def group(self) -> GroupOp:
        """Which writes it."""
        assert isinstance(self.value.op, GroupOp)
        return self.value.op

    @property
    def users(self) -> list[GroupOp]:
        """The producer and the consumers, in text order."""
        readers = [use.operation for use in self.value.uses]
        return list(dict.fromkeys([self.group, *(group for group in readers if isinstance(group, GroupOp))]))

    @property
    def view(self) -> View:
        """Where its elements lie."""
        shape = tensor_info(self.value.type).shape
        return View(0, shape, View.whole((*shape[:-1], self.row)).strides)

    @property
    def gaps(self) -> tuple[int, ...]:
        """The sizes of all gaps together."""
        shape = tensor_info(self.value.type).shape
        return (*shape[:-1], self.row - shape[-1])


class _Deciding:
    """The decisions about one function."""

    def __init__(self, context: FusionContext, row_bytes: int) -> None:
        self._context, self._row_bytes = context, row_bytes

    def take_in_reshapes(self) -> None:
        """Moves reshapes that keep the rows of a candidate into the groups that read them: within a group they are
        strides, whatever lies between the rows."""
        for group in list(self._context.function.body.block.ops):
            if isinstance(group, GroupOp):
                for value in group.results:
                    self._take_in_reshapes_of(value)

    def _take_in_reshapes_of(self, value: OpResult) -> None:
        if not self._has_short_rows(value) or alias_of(value).whole is not value:
            return
        readers = [use.operation for use in value.uses]
        reshapes = [reader for reader in readers if isinstance(reader, logical.ReshapeOp)]
        behind = [use.operation for reshape in reshapes for use in reshape.result.uses]
        groups = [op for op in (value.op, *readers, *behind) if isinstance(op, GroupOp)]
        if (
            len(groups) == 1 + len(readers) - len(reshapes) + len(behind)
            and all(is_free_to_move(group) for group in groups)
            and any(multiplies(group.body.block) for group in groups)
            and all(_keeps_rows(reshape) for reshape in reshapes)
        ):
            for reshape in reshapes:
                _take_in(reshape)

    def candidates(self) -> Iterator[OpResult]:
        """Results whose rows do not begin at such multiples, but could."""
        for group in self._context.function.body.block.ops:
            if isinstance(group, GroupOp):
                yield from (value for value in group.results if self._is_candidate(value))

    def run(self) -> None:
        """Decides about one value after the other, in text order: later ones know of earlier ones."""
        for value in list(self.candidates()):
            if self._is_candidate(value):  # it may have been laid out with another one
                self._decide(self._pitch(value))

    def _is_candidate(self, value: OpResult) -> bool:
        if not self._has_short_rows(value):
            return False
        users = [value.op, *(use.operation for use in value.uses)]
        groups = [group for group in users if isinstance(group, GroupOp) and is_free_to_move(group)]
        return (
            1 < len(groups) == len(users)
            and any(multiplies(group.body.block) for group in groups)
            and alias_of(value).whole is value
        )

    def _has_short_rows(self, value: OpResult) -> bool:
        """Whether rows do not begin at multiples of what kernels copy at once."""
        shape = tensor_info(value.type).shape
        return len(shape) > 1 and 0 not in shape and shape[-1] * _size(value) % self._row_bytes != 0

    def _pitch(self, value: OpResult) -> _Pitch:
        columns, whole = tensor_info(value.type).shape[-1], self._row_bytes // _size(value)
        return _Pitch(value, -(-columns // whole) * whole)

    def _decide(self, pitch: _Pitch) -> None:
        named, every = self._requested_layout(pitch.group), self._context.policy.layouts.get(EVERY_VALUE)
        if named == PITCHED:
            self._check_legal(pitch)
        requested = named or every
        if requested == ROW_MAJOR or (
            requested != PITCHED and self._context.policy.determinism == BATCH_INVARIANT
        ):
            return
        dense_us = self._us(pitch.users, {})
        pitched_us = self._us(pitch.users, {pitch.value: pitch.view}) + self._gap_us(pitch)
        if requested == PITCHED and pitched_us < inf:
            because = "the policy says so"
        elif dense_us - pitched_us > max(LEAST_GAIN * dense_us, LEAST_GAIN_US):
            because = (
                f"predicted {pitched_us:.4g} us for its producer and consumers together, not {dense_us:.4g}"
            )
        else:
            return
        self._lay_out(pitch, because, dense_us, pitched_us)
        for operand in dict.fromkeys(pitch.group.ins):
            if (
                isinstance(operand, OpResult)
                and operand.type == pitch.value.type
                and self._is_candidate(operand)
            ):
                self._follow(self._pitch(operand), pitch)

    def _follow(self, pitch: _Pitch, follower: _Pitch) -> None:
        """Lays out an operand as the result that may overwrite it lies, unless that costs time."""
        dense_us = self._us(pitch.users, {})
        pitched_us = self._us(pitch.users, {pitch.value: pitch.view}) + self._gap_us(pitch)
        if pitched_us - dense_us <= max(LEAST_GAIN * dense_us, LEAST_GAIN_US):
            because = f"'{follower.group.id.data}' has the same rows and may overwrite it"
            self._lay_out(pitch, because, dense_us, pitched_us)

    def _requested_layout(self, group: GroupOp) -> str | None:
        layouts, id_ = self._context.policy.layouts, group.id.data
        return layouts.get(id_, layouts.get(without_bucket(id_)))

    # Predicted times

    def _us(self, groups: list[GroupOp], views: Mapping[SSAValue, View]) -> float:
        """Microseconds of groups if values lie so; infinite where no kernel runs one."""
        return sum(self._group_us(group, _aliased(group, views)) for group in groups)

    def _group_us(self, group: GroupOp, work: GroupWorkload) -> float:
        return inf if why_not_aliased(group, work, self._context) else least_us(work, self._context)

    def _gap_us(self, pitch: _Pitch) -> float:
        group = _filling(pitch)
        shape = tensor_info(pitch.value.type).shape
        return self._us([group], {group.results[0]: View(shape[-1], pitch.gaps, pitch.view.strides)})

    def _check_legal(self, pitch: _Pitch) -> None:
        for group in pitch.users:
            work = _aliased(group, {pitch.value: pitch.view})
            if (why := why_not_aliased(group, work, self._context)) is not None:
                raise PolicyError(
                    f"layouts.{pitch.group.id.data}: '{group.id.data}' cannot run with it {PITCHED}: {why}; say "
                    f"{ROW_MAJOR}, or leave it out"
                )

    # Rewriting

    def _lay_out(self, pitch: _Pitch, because: str, dense_us: float, pitched_us: float) -> None:
        """Writes the gaps and the concatenation after the group."""
        users, group = pitch.users, pitch.group
        gap = _filling(pitch)
        rows = logical.ConcatOp([pitch.value, gap.results[0]], len(pitch.gaps) - 1)
        set_identity(rows, derived_id(group.id.data, WITH_GAPS), [source.data for source in group.src])
        rows.location = gap.location = group.location
        block = group.parent
        assert block is not None
        block.insert_ops_after([gap, rows], group)
        for each in users:
            remember_workload(each, _aliased(each, {}))
        record_decision(
            self._context.module,
            SelectPitchesPass.name,
            [group.id.data, gap.id.data],
            f"a row every {pitch.row} elements",
            because,
            {ROW_MAJOR: f"predicted {dense_us:.4g} us, not {pitched_us:.4g}"},
            {
                "row_major_us": microseconds(dense_us),
                "pitched_us": microseconds(pitched_us),
                "gap_bytes": IntegerAttr(prod(pitch.gaps) * _size(pitch.value), i64),
            },
        )


def _keeps_rows(reshape: logical.ReshapeOp) -> bool:
    before, after = (tensor_info(value.type).shape for value in (reshape.operands[0], reshape.result))
    return len(after) > 1 and after[-1] == before[-1]


def _take_in(reshape: logical.ReshapeOp) -> None:
    """Lets the groups that read a reshape outside of groups do it themselves."""
    for use in list(reshape.result.uses):
        group = use.operation
        assert isinstance(group, GroupOp)
        block, old = group.body.block, group.body.block.args[use.index]
        own = reshape.clone()
        new = block.insert_arg(reshape.operands[0].type, use.index)
        own.operands[0] = new
        block.insert_op_before(own, block.first_op) if block.first_op else block.add_op(own)
        old.replace_all_uses_with(own.result)
        block.erase_arg(old)
        group.operands[use.index] = reshape.operands[0]
        remember_workload(group, _aliased(group, {}))
    reshape.detach()
    reshape.erase()


def _aliased(group: GroupOp, views: Mapping[SSAValue, View]) -> GroupWorkload:
    return aliased_workload(group, lambda value: views[value] if value in views else alias_of(value).view)


def _filling(pitch: _Pitch) -> GroupOp:
    """The group that writes zeros into the gaps."""
    group, info = pitch.group, tensor_info(pitch.value.type)
    body = Block()
    body.add_op(zeros := logical.ConstantOp(0, info.with_sizes(pitch.gaps)))
    body.add_op(YieldOp([zeros.result]))
    sources = [source.data for source in group.src]
    return GroupOp(derived_id(group.id.data, GAP), sources, [], Region(body), [zeros.result.type])


def _size(value: SSAValue) -> int:
    """Bytes of one element."""
    return element_of(value.type).dtype.itemsize
