"""Values of a kernel body, computed on demand: what every generator of code from `emit.kernel` starts from."""

from __future__ import annotations

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.backends.common.loop_nest import reads
from aicf.backends.cpu.codegen.ir_builder import Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, dtype_of
from aicf.dialects.emit_kernels import IndexOp, LoadOp, PhaseOp, PhiloxOp


class Evaluator:
    """Computes values of a kernel body on demand, operands first, each once."""

    def __init__(self, scalars: Scalars) -> None:
        self.scalars = scalars
        self.values: dict[SSAValue, Value] = {}

    def value(self, root: SSAValue) -> Value:
        """The value of `root`, emitting what is missing."""
        stack = [root]
        while stack:
            current = stack[-1]
            if self.known(current) is not None:
                stack.pop()
                continue
            missing = [operand for operand in self.needs(current) if self.known(operand) is None]
            if missing:
                stack.extend(reversed(missing))
                continue
            self.values[current] = self.compute(current)
            stack.pop()
        found = self.known(root)
        assert found is not None
        return found

    def known(self, value: SSAValue) -> Value | None:
        """What is computed already."""
        return self.values.get(value)

    def needs(self, value: SSAValue) -> tuple[SSAValue, ...]:
        """What `compute` wants known. Some ask by themselves: of their indices often one lane is enough."""
        return () if isinstance(value, OpResult) and isinstance(value.op, LoadOp | PhiloxOp) else reads(value)

    def compute(self, value: SSAValue) -> Value:
        """The value, its operands being known."""
        if isinstance(value, BlockArgument):
            return self.load(value.index)
        assert isinstance(value, OpResult)
        if isinstance(value.op, PhaseOp):
            return self.value(value.op.terminator.operands[value.index])
        if isinstance(value.op, IndexOp):
            return self.scalars.counted(*self.coordinate(value.op.number), dtype_of(value))
        if isinstance(value.op, LoadOp):
            return self.load_at(value.op)
        if isinstance(value.op, PhiloxOp):
            return self.random(value.op)
        return self.scalars.emit(value.op, self.operands(value.op))

    def operands(self, op: Operation) -> list[Value]:
        """The values of an op's operands."""
        return [self.value(operand) for operand in op.operands]

    def random(self, op: PhiloxOp) -> Value:
        """The random word(s) here."""
        return self.scalars.emit(op, self.operands(op))

    def load(self, operand: int) -> Value:
        """The element(s) of an operand here."""
        raise NotImplementedError

    def coordinate(self, dim: int) -> tuple[Value, int]:
        """The coordinate of the first lane along a dim of the iteration space (i64), and from lane to lane."""
        raise NotImplementedError

    def load_at(self, op: LoadOp) -> Value:
        """The element(s) at computed indices."""
        raise NotImplementedError
