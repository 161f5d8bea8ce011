"""The predicted time of a product of dequantised tensors: in f32, and of their integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit import YieldOp
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_of, tensor, tensor_info
from aicf.passes.bodies.view_folding import FoldedBody, Lies, fold_views
from aicf.passes.bodies.workload import updated_names, workload_of_folded
from aicf.passes.emit.parameters import ParameterValues
from aicf.passes.fusion.forming import FusionContext
from aicf.passes.fusion.profitability import Profitability
from aicf.passes.layout.layout_graph import RANKS, channels_last
from aicf.passes.legalize.dequantised import F32, I32, Dequantised
from aicf.passes.legalize.zero_points import Correction
from aicf.passes.support.policy import execution_of
from aicf.passes.support.writing import Writer

Rebuild = Callable[[SSAValue, SSAValue], LogicalOp]
"""Makes a widening product of two operands."""


class NoKernel(Exception):
    """No kernel of the target runs one of the two; says why."""


class _BodyWriter(Writer):
    """Writes a body that is only priced.

    Args:
        types: Of its arguments.
    """

    def __init__(self, types: Sequence[Attribute]) -> None:
        self.block = Block(arg_types=types)

    @property
    def args(self) -> Sequence[BlockArgument]:
        """What the body reads."""
        return self.block.args

    def add(self, op: LogicalOp, suffix: str) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]


@dataclass(frozen=True)
class ProductPrices:
    """Prices of the products of one function, in microseconds.

    An operand that follows from parameters alone is there before the first run. Another one is made at each run: by
    what quantises it, if nothing else reads the integers, else by a kernel of its own. Its products share that.
    """

    module: ModuleOp
    context: FusionContext

    @cached_property
    def _values(self) -> ParameterValues:
        return ParameterValues(self.context.function, updated_names(self.context.function))

    def is_prepared(self, value: SSAValue) -> bool:
        """Whether a value is there before the first run."""
        return value in self._values.fixed and execution_of(self.module).prepared_weights

    def wide(self, product: Operation, operands: Sequence[Dequantised]) -> float:
        """Of the product as it stands. Raises NoKernel."""
        body = _BodyWriter(product.operand_types)
        sums = product.clone(dict(zip(product.operands, body.args, strict=True)))
        body.block.add_op(sums)
        whole = self._us(body, sums.results[0], [self._origin(each.value) for each in operands])
        return whole + sum(self._share(each, self._dequantising) for each in operands)

    def narrow(
        self,
        rebuild: Rebuild,
        operands: Sequence[Dequantised],
        axis: int | None,
        corrections: Sequence[Correction | None],
    ) -> float:
        """Of the product of integers, multiplied with a scale for each position along `axis`. Raises NoKernel.

        What is taken off the sums follows from parameters."""
        types = [tensor(tensor_info(each.value.type).shape, each.element) for each in operands]
        body = _BodyWriter(types)
        sums = body.add(rebuild(*body.args), "")
        origins = [self._origin(each.value) for each in operands]
        for correction in filter(None, corrections):
            excess = body.block.insert_arg(tensor(correction.sizes, I32), len(origins))
            origins.append(("param", False))
            sums = correction.taken_off(body, sums, excess, "")
        wide = body.cast(sums, F32, "")
        sizes = tensor_info(wide.type).shape
        if axis is None:
            scale = body.splat(0.5, wide, "")
        else:
            vector = body.block.insert_arg(tensor((sizes[axis],), F32), len(origins))
            scale = body.broadcast(vector, [axis], sizes, "")
            origins.append(("param", False))
        whole = self._us(body, body.add(logical.MulOp(wide, scale), ""), origins)
        return whole + sum(self._share(each, self._centering) for each in operands)

    def _share(self, operand: Dequantised, price: Callable[[Dequantised, bool], float]) -> float:
        """What each product that reads an operand pays for it."""
        if operand.value in self._values.fixed:
            return 0.0
        return price(operand, _is_made_here(operand)) / len(set(use.operation for use in operand.value.uses))

    def _dequantising(self, operand: Dequantised, is_made_here: bool) -> float:
        """Of f32 in memory, from the integers there or from what they are cast from."""
        body, stored = _from_memory(operand, is_made_here)
        inner = {operand.stored: stored, operand.scale: body.splat(0.5, operand.value, "")}
        if operand.zero is not None:
            inner[operand.zero] = body.splat(operand.zeros[1], operand.zero, "")
        for op in operand.ops:
            for other in op.operands:
                if other not in inner:  # zero points that are 0
                    inner[other] = body.splat(0, other, "")
            body.block.add_op(op.clone(inner))
        return self._us(body, inner[operand.value], [("temp", False)])

    def _centering(self, operand: Dequantised, is_made_here: bool) -> float:
        """Of the integers less the zero points in memory."""
        body, stored = _from_memory(operand, is_made_here)
        if operand.zero is None:
            return self._us(body, stored, [("temp", False)]) if is_made_here else 0.0
        wide = body.cast(stored, operand.element, "")
        zero = body.splat(operand.zeros[1], wide, "")
        return self._us(body, body.add(logical.SubOp(wide, zero), ""), [("temp", False)])

    def _origin(self, value: SSAValue) -> tuple[str, bool]:
        return ("param" if self.is_prepared(value) else "temp"), False

    def _us(self, body: _BodyWriter, result: SSAValue, origins: Sequence[tuple[str, bool]]) -> float:
        body.block.add_op(YieldOp([result]))
        profitabilities = [
            self._profitability(fold_views(body.block, lies), origins) for lies in _memories(body.block)
        ]
        if not profitabilities[0].legal:
            reasons = "; ".join(f"{kernel}: {why}" for kernel, why in profitabilities[0].rejected.items())
            raise NoKernel(
                reasons or f"no kernel of the target runs a {profitabilities[0].work.kind} of these types"
            )
        return min(profitability.fused_us for profitability in profitabilities if profitability.legal)

    def _profitability(self, folded: FoldedBody, origins: Sequence[tuple[str, bool]]) -> Profitability:
        work = workload_of_folded("priced", folded, origins)
        return Profitability.of(work, self.context.target, self.context.policy)


def _memories(block: Block) -> list[Lies]:
    """Where the values of a body may lie: row-major, and of a convolution also its pixels channels-last."""
    own = Lies.alone(block)
    if not isinstance(conv := block.first_op, logical.ConvOp) or len(conv.info.shape) not in RANKS:
        return [own]
    x, y = (channels_last(tensor_info(value.type).shape) for value in (conv.operand, conv.result))
    return [own, Lies((x, *own.operands[1:]), (y,))]


def _is_made_here(operand: Dequantised) -> bool:
    """Whether the integers are cast from floats for this tensor alone, so that one kernel may do all."""
    made = operand.stored.owner
    return (
        isinstance(made, logical.CastOp)
        and element_of(made.operand.type).is_float
        and len(list(operand.stored.uses)) == 1
    )


def _from_memory(operand: Dequantised, is_made_here: bool) -> tuple[_BodyWriter, SSAValue]:
    """A body that begins with the integers of an operand."""
    stored = operand.stored
    if not is_made_here:
        body = _BodyWriter([stored.type])
        return body, body.args[0]
    made = stored.owner
    assert isinstance(made, logical.CastOp)
    body = _BodyWriter([made.operand.type])
    return body, body.cast(body.args[0], element_of(stored.type), "")
