"""Products and convolutions that can be computed in 8 bits, and what their operands are."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.traits import Contraction, RandomNumbers, Unpacking
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.bodies.outlining import id_of
from aicf.passes.bodies.workload import argument_attrs
from aicf.passes.support.policy import without_bucket


@dataclass(frozen=True)
class Factor:
    """An operand of a product.

    Args:
        index: Its position.
        outputs: The dimension that is one of the result, along which a weight may have a scale for each position.
        inputs: The dimension that is added up over, along which numbers may be exchanged with the other factor.
    """

    index: int
    outputs: int
    inputs: int


@dataclass(frozen=True)
class Product:
    """An op of f32 whose two factors can become integers, or floats of 8 bits.

    Args:
        op: A `linear`, `matmul` or `conv`.
        factors: Its operands, without the bias.
        weights: Those among them that follow from parameters alone.
        channels: For each factor, the dimension of the result that its outputs become.
    """

    op: LogicalOp
    factors: tuple[Factor, Factor]
    weights: tuple[Factor, ...]
    channels: tuple[int, int]

    @property
    def name(self) -> str:
        """The id in policies: that of the op without its bucket."""
        return without_bucket(id_of(self.op))

    @property
    def takes_float8(self) -> bool:
        """Whether its factors may be floats of 8 bits: nothing convolves those."""
        return not isinstance(self.op, logical.ConvOp)

    @property
    def activations(self) -> tuple[Factor, ...]:
        """The factors that depend on inputs."""
        return tuple(factor for factor in self.factors if factor not in self.weights)

    @property
    def channels_of_weight(self) -> int:
        """The dimension of the result along which the outputs of its one weight lie."""
        (weight,) = self.weights
        return self.channels[weight.index]

    def value(self, factor: Factor) -> SSAValue:
        """The operand itself."""
        return self.op.operands[factor.index]


def products_of(function: FuncOp) -> list[Product]:
    """All products of a function that depend on an input, in text order."""
    fixed = parameter_values(function)
    found = (_product(op, fixed) for op in function.body.block.ops if isinstance(op, LogicalOp))
    return [product for product in found if product is not None and product.activations]


def parameter_values(function: FuncOp) -> set[SSAValue]:
    """The values of a function that follow from parameters and constants alone."""
    block = function.body.block
    fixed: set[SSAValue] = {argument for argument in block.args if _is_parameter(function, argument)}
    for op in block.ops:
        if isinstance(op, LogicalOp) and not op.has_trait(RandomNumbers) and fixed.issuperset(op.operands):
            fixed.update(op.results)
    return fixed


def _is_parameter(function: FuncOp, argument: BlockArgument) -> bool:
    role = argument_attrs(function, argument.index)[logical.ROLE_ATTR]
    return role.data == "param"


def _product(op: LogicalOp, fixed: set[SSAValue]) -> Product | None:
    if (shape := _factors(op)) is None or any(element_of(value.type).name != "f32" for value in op.operands):
        return None
    if any(is_packed(value) for value in op.operands):
        return None
    factors, channels = shape
    weights = tuple(factor for factor in factors if op.operands[factor.index] in fixed)
    return Product(op, factors, weights, channels)


def is_packed(value: SSAValue) -> bool:
    """Whether a value is a weight that stays in blocks, in fewer bits already: kernels widen its codes exactly."""
    return isinstance(value, OpResult) and value.op.has_trait(Unpacking)


def _factors(op: Operation) -> tuple[tuple[Factor, Factor], tuple[int, int]] | None:
    """The factors of an op, and for each the dimension of the result that its outputs become."""
    if not op.has_trait(Contraction):
        return None
    lhs, rhs = (tensor_info(value.type).rank for value in op.operands[:2])
    last = tensor_info(op.results[0].type).rank - 1
    if isinstance(op, logical.LinearOp):
        return (Factor(0, 0, lhs - 1), Factor(1, 0, 1)), (0, last)
    if isinstance(op, logical.ConvOp):
        return (Factor(0, 0, 1), Factor(1, 0, 1)), (0, 1)
    if not isinstance(op, logical.MatmulOp) or lhs < 2 or rhs < 2:
        return None
    row, column = lhs - 2, rhs - 1
    left = Factor(0, lhs - 1, row) if op.transpose_a is not None else Factor(0, row, lhs - 1)
    right = Factor(1, rhs - 2, column) if op.transpose_b is not None else Factor(1, column, rhs - 2)
    return (left, right), (last - 1, last)
