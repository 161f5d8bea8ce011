"""Block-quantised weights: rows of bytes that stay packed in memory, and what reads them.

A scheme is a row of the table in `dialects/block_schemes.py`; its NumPy lines are what the bytes mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.block_schemes import BLOCK_SCHEMES, Scheme
from aicf.dialects.logical_ops.base import LogicalOp, Operand, OwnKind
from aicf.dialects.logical_ops.indexing import indices_info
from aicf.dialects.logical_ops.properties import Properties, word_value
from aicf.dialects.traits import Contraction, Internal, PositionalOperands, Unpacking
from aicf.dialects.types import AnyTensor, TensorInfo, tensor, tensor_info

__all__ = ["BLOCK_FACTORS", "DequantizeBlocksOp", "MatmulBlocksOp", "RoundedMatmulBlocksOp"]

BLOCK_FACTORS = ("f32", "f16", "bf16")
"""Types of what is multiplied with widened weights."""


def _scheme(properties: Properties) -> Scheme:
    """Raises VerifyException: there is no such scheme."""
    return BLOCK_SCHEMES[word_value("scheme", properties, tuple(BLOCK_SCHEMES))]


def _columns(packed: TensorInfo, scheme: Scheme) -> int:
    """Elements of a row of bytes. Raises VerifyException if these are no whole blocks."""
    if packed.element.name != "u8" or not packed.rank:
        raise VerifyException(f"packed is {packed}; it is rows of bytes: u8[..., bytes of a row]")
    size = packed.sizes[-1]
    if not isinstance(size, int) or size % scheme.nbytes:
        raise VerifyException(f"rows have {size} bytes; {scheme.name} has blocks of {scheme.nbytes}")
    return size // scheme.nbytes * scheme.length


@irdl_op_definition
class DequantizeBlocksOp(LogicalOp):
    """The numbers that rows of blocks store, by a scheme: packed u8 ``[..., bytes]``, result f32 ``[..., columns]``.

    Products that contract the columns read the blocks themselves, and a gather of rows widens only those it reads.
    Never computed ahead of a run, so the weight stays packed in memory. Schemes: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K,
    Q5_K and Q6_K, as llama.cpp defines them; codes of 4 or 8 bits with a scale and a minimum of f32 for each group of
    16, 32 or 128: U4_16, U4 (of 32), U4_128, U8_16, U8_32 and U8_128; f8E4M3FN with a scale of f32 for each 32 or 128:
    E4M3_32 and E4M3_128.
    """

    name = "logical.dequantize_blocks"
    packed = operand_def()
    scheme = prop_def(StringAttr)
    traits = traits_def(Unpacking(), PositionalOperands())

    def __init__(self, packed: Operand, scheme: str):
        super().__init__(packed, scheme=scheme)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's sizes with elements for bytes in the last one."""
        packed = tensor_info(operands[0])
        columns = _columns(packed, _scheme(properties))
        return tensor([*packed.sizes[:-1], columns], "f32")

    def kind_alone(self) -> OwnKind | None:
        """`dequantize_blocks`, with its scheme."""
        return "dequantize_blocks", {"scheme": self.scheme}


@irdl_op_definition
class MatmulBlocksOp(LogicalOp):
    """``x @ dequantize_blocks(packed).T``, widened on the way to the multiplier: x ``[..., K]`` of f32, f16 or bf16,
    packed u8 ``[N, bytes of K elements]``, result ``[..., N]`` of x's type, rounded from f32. Next to an x of f16 or
    bf16 the widened weight may be rounded to that type first, as the formula does, and as kernels that have it whole
    do not.

    With indices each row of x has a matrix of its own: indices ``[...]``, packed u8 ``[E, N, bytes of K elements]``. A
    negative index counts from the end; an index out of range is clamped.
    """

    name = "logical.matmul_blocks"
    operand = operand_def()
    packed = operand_def()
    indices = opt_operand_def()
    scheme = prop_def(StringAttr)
    traits = traits_def(Contraction(), Unpacking(), PositionalOperands(), Internal())

    def __init__(self, operand: Operand, packed: Operand, scheme: str, indices: Operand | None = None):
        super().__init__(operand, packed, indices, scheme=scheme)

    @property
    def lhs(self) -> SSAValue:
        """The left factor, as a matmul calls it."""
        return self.operand

    @property
    def rhs(self) -> SSAValue:
        """The right factor, as a matmul calls it."""
        return self.packed

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The sizes of x with the weight's rows for its last one, and its type."""
        return _product(operands, properties, BLOCK_FACTORS)

    def kind_alone(self) -> OwnKind | None:
        """`matmul_blocks`, with its scheme."""
        return "matmul_blocks", {"scheme": self.scheme}


@irdl_op_definition
class RoundedMatmulBlocksOp(LogicalOp):
    """As `matmul_blocks`, of x rounded to 8 bits: 32 neighbours of a row share a step, or 16 where a scheme's factors
    are for as many.

    The step is the largest magnitude among them, at least 2^-100, by 127, and each becomes the nearest multiple. If one
    of them is not finite, all results of the row are NaN. Only `read-packed-weights` writes this op, where the policy
    says so.
    """

    name = "logical.rounded_matmul_blocks"
    operand = operand_def()
    packed = operand_def()
    scheme = prop_def(StringAttr)
    traits = traits_def(Contraction(), Unpacking(), PositionalOperands(), Internal())

    def __init__(self, operand: Operand, packed: Operand, scheme: str):
        super().__init__(operand, packed, scheme=scheme)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The sizes of x with the weight's rows for its last one."""
        return _product(operands, properties, ("f32",))

    def kind_alone(self) -> OwnKind | None:
        """`rounded_matmul_blocks`, with its scheme."""
        return "rounded_matmul_blocks", {"scheme": self.scheme}


def _product(operands: Sequence[Attribute], properties: Properties, factors: Sequence[str]) -> AnyTensor:
    """The result of a product with x of one of the types `factors`. Raises VerifyException if its operands do not
    fit."""
    x, packed, *chosen = (tensor_info(operand) for operand in operands)
    if x.element.name not in factors or x.rank < 2:
        raise VerifyException(f"operand is {x}; it is {' or '.join(factors)}[..., M, K]")
    if chosen:
        _check_chosen(x, packed, indices_info(operands[2]))
    elif packed.rank != 2:
        raise VerifyException(f"packed is {packed}; it is one matrix: u8[N, bytes of a row]")
    columns = _columns(packed, _scheme(properties))
    if x.sizes[-1] != columns:
        raise VerifyException(f"contracted sizes differ: operand K = {x.sizes[-1]}, packed K = {columns}")
    return tensor([*x.sizes[:-1], packed.sizes[-2]], x.element)


def _check_chosen(x: TensorInfo, packed: TensorInfo, indices: TensorInfo) -> None:
    if packed.rank != 3:
        raise VerifyException(f"packed is {packed}; with indices it is matrices: u8[E, N, bytes of a row]")
    if indices.sizes != x.sizes[:-1]:
        raise VerifyException(f"indices are {indices}; there is one for each row of the operand {x}")
