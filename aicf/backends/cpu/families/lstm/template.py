"""Code for all steps of an LSTM: a loop over steps around the products and gates of one step.

The weight is packed first, so that a step reads it in order: for each vector of states, all k, the four gates of each.
A step reads h where the step before wrote it, in the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.math.elementary import VectorMath
from aicf.backends.cpu.families.lstm.kernel import GATES, LstmSizes


@dataclass(frozen=True)
class LstmPointers:
    """Run-time operands of the emitted code."""

    x: Value
    weight: Value
    first: Value
    states: Value
    workspace: Value | None


@dataclass(frozen=True)
class Lstm:
    """Where the operands lie, and how the sums are tiled."""

    x: Strided
    weight: Strided
    first: Strided
    states: Strided
    sizes: LstmSizes
    reverse: bool

    @property
    def dtype(self) -> str:
        """Of all operands."""
        return self.states.dtype

    def emit(self, em: Emitter, at: LstmPointers) -> None:
        """Packs, then steps."""
        packed = at.weight if at.workspace is None else self._pack(em, at.weight, at.workspace)
        last = em.index(self.sizes.steps - 1)

        def body(count: Value, before: list[Value]) -> Sequence[Value]:
            step = em.b.sub(last, count) if self.reverse else count
            x = em.moved(at.x, step, self.x.strides[0], self.dtype)
            h = em.moved(at.states, step, self.states.strides[1], self.dtype)
            c = em.address(h, self.states.strides[0], self.dtype)
            self._step(em, packed, x, before, (h, c))
            return [h, c, em.index(self.states.strides[2])]

        c = em.address(at.first, self.first.strides[0], self.dtype)
        em.loop(0, self.sizes.steps, 1, [at.first, c, em.index(self.first.strides[1])], body)

    def _pack(self, em: Emitter, weight: Value, packed: Value) -> Value:
        """Row k of block b: the gates' weights of state k for the states of the block; 0 past the last of them."""
        sizes, lanes = self.sizes, self.sizes.lanes
        rows, columns = self.weight.strides

        @em.panels(self.sizes.hidden, self.sizes.lanes)
        def block(number: Value, active: int) -> None:
            first = em.b.mul(number, em.index(lanes))

            @em.each(0, sizes.hidden)
            def row(k: Value) -> None:
                offset = em.b.add(em.b.mul(number, em.index(sizes.hidden)), k)
                target = em.moved(packed, offset, GATES * lanes, self.dtype)
                for gate in range(GATES):
                    below = em.b.add(first, em.index(gate * sizes.hidden))
                    source = em.moved(em.moved(weight, below, rows, self.dtype), k, columns, self.dtype)
                    values = self._column(em, source, rows, active)
                    em.store(values, em.address(target, gate * lanes, self.dtype), self.dtype, lanes)

        return packed

    def _column(self, em: Emitter, source: Value, stride: int, active: int) -> Value:
        """A vector of elements `stride` apart, of which the first `active` exist and the others are 0."""
        vector = em.const(self.dtype, self.sizes.lanes, 0)
        for lane in range(active):
            element = em.load(em.address(source, lane * stride, self.dtype), self.dtype, 1)
            vector = element if self.sizes.lanes == 1 else em.with_lane(vector, lane, element)
        return vector

    def _step(
        self, em: Emitter, packed: Value, x: Value, before: Sequence[Value], after: Sequence[Value]
    ) -> None:
        """The states of one step: all rows of the batch against one block of the weight after the other."""
        sizes = self.sizes

        @em.panels(self.sizes.hidden, self.sizes.lanes)
        def block(number: Value, active: int) -> None:
            panel = em.moved(packed, number, sizes.strides[0], self.dtype)
            column = em.b.mul(number, em.index(sizes.lanes))

            @em.pieces(sizes.batch, sizes.rows)
            def rows(row: Value, count: int) -> None:
                self._rows(em, panel, x, before, after, column, row, count, active)

    def _rows(
        self,
        em: Emitter,
        panel: Value,
        x: Value,
        before: Sequence[Value],
        after: Sequence[Value],
        column: Value,
        row: Value,
        count: int,
        active: int,
    ) -> None:
        """`count` rows of the batch from `row` on: the sums of one vector of states, then its gates."""
        h, c, stride = before
        numbers = [em.b.add(row, em.index(offset)) for offset in range(count)]
        olds = [em.address(h, em.b.mul(number, stride), self.dtype) for number in numbers]
        sums = self._sums(em, panel, olds)
        math = VectorMath(em, self.dtype, self.sizes.lanes)
        lanes = self.sizes.lanes
        for number, own in zip(numbers, sums, strict=True):
            inputs = em.address(em.moved(x, number, self.x.strides[1], self.dtype), column, self.dtype)
            enter, leave, keep, new = (
                em.b.fadd(
                    em.load(
                        em.address(inputs, gate * self.sizes.hidden, self.dtype), self.dtype, lanes, active
                    ),
                    value,
                )
                for gate, value in enumerate(own)
            )
            old = em.address(em.address(c, em.b.mul(number, stride), self.dtype), column, self.dtype)
            kept = em.b.fmul(math.sigmoid(keep), em.load(old, self.dtype, lanes, active))
            state = em.b.fadd(kept, em.b.fmul(math.sigmoid(enter), math.tanh(new)))
            hidden = em.b.fmul(math.sigmoid(leave), math.tanh(state))
            for target, value in zip(after, (hidden, state), strict=True):
                line = em.address(
                    em.moved(target, number, self.states.strides[2], self.dtype), column, self.dtype
                )
                em.store(value, line, self.dtype, lanes, active)

    def _sums(self, em: Emitter, panel: Value, olds: Sequence[Value]) -> list[list[Value]]:
        """For each row the products of its old states with one block of the weight, gate by gate."""
        sizes, lanes = self.sizes, self.sizes.lanes
        split = sizes.split if len(olds) == 1 else 1
        full = sizes.hidden // split * split
        zero = em.const(self.dtype, lanes, 0)
        _, k_stride, gate_stride = sizes.strides

        def add(k: Value, sums: list[Value], parts: int) -> list[Value]:
            found = list(sums)
            for part in range(parts):
                own = em.b.add(k, em.index(part))
                line = em.moved(panel, own, k_stride, self.dtype)
                weights = [
                    em.load(em.address(line, gate * gate_stride, self.dtype), self.dtype, lanes)
                    for gate in range(GATES)
                ]
                for number, old in enumerate(olds):
                    element = em.load(em.moved(old, own, 1, self.dtype), self.dtype, 1)
                    factor = element if lanes == 1 else em.splat(element, lanes)
                    for gate, weight in enumerate(weights):
                        at = (part * len(olds) + number) * GATES + gate
                        found[at] = em.fma(factor, weight, found[at])
            return found

        sums = em.loop(
            0,
            full,
            split,
            [zero] * (split * len(olds) * GATES),
            lambda k, carried: add(k, carried, split),
        )
        for k in range(full, sizes.hidden):
            sums = add(em.index(k), sums, 1)
        while len(sums) > len(olds) * GATES:
            half = len(sums) // 2
            sums = [em.b.fadd(one, other) for one, other in zip(sums[:half], sums[half:], strict=True)]
        return [sums[start : start + GATES] for start in range(0, len(sums), GATES)]
