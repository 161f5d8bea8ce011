"""Block-quantised weights as arithmetic on their bytes, for targets without kernels that read blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.block_bits import BLOCK_BITS, LEAST_MAGNITUDE, RUN, Bits, BlockBits, Factor
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.types import element_named, tensor, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering


@dataclass(frozen=True)
class _Blocks:
    """Bytes as i32[blocks, bytes of a block], and how parts of them become numbers."""

    lower: Lowering
    bytes: SSAValue

    @property
    def count(self) -> int:
        return tensor_info(self.bytes.type).shape[0]

    def taken(self, start: int, size: int) -> SSAValue:
        """Neighbouring bytes of every block."""
        return self.lower.add(logical.SliceOp(self.bytes, [0, start], [-1, size]), "bytes")

    def field(self, bits: Bits, size: int) -> SSAValue:
        """Bits of neighbouring bytes, or the bits of two bytes, moved to where they belong in a code."""
        lower = self.lower
        value = (
            self._single_bits(self.taken(bits.byte, size // 8))
            if bits.by_bit
            else self.taken(bits.byte, size)
        )
        if bits.shift:
            value = lower.apply(logical.DivOp, value, 1 << bits.shift)
        if bits.by_bit or bits.shift + bits.width < 8:
            value = _below(lower, value, 1 << bits.width)
        return lower.apply(logical.MulOp, value, 1 << bits.to) if bits.to else value

    def _single_bits(self, both: SSAValue) -> SSAValue:
        """i32[blocks, bytes] to i32[blocks, 8 bytes]: each byte shifted right by 0 to 7."""
        lower, (count, size) = self.lower, tensor_info(both.type).shape
        sizes = (count, size, 8)
        spread = lower.broadcast(both, (0, 1), sizes, "spread")
        powers = lower.add(logical.ConstantOp([1 << bit for bit in range(8)], tensor((8,), "i32")), "powers")
        shifted = lower.apply(logical.DivOp, spread, lower.broadcast(powers, (2,), sizes, "powers"))
        return lower.reshape(shifted, (count, size * 8))

    def number(self, fields: Sequence[Bits], size: int) -> SSAValue:
        """Whole numbers of several fields: i32[blocks, size]."""
        first, *others = (self.field(bits, size) for bits in fields)
        for other in others:
            first = self.lower.apply(logical.AddOp, first, other)
        return first

    def factor(self, factor: Factor, part: int) -> SSAValue:
        """A factor of a part: f32[blocks, 1]."""
        lower, bits = self.lower, element_named("i16" if factor.stored == "f16" else "i32")
        start = factor.byte + part * factor.step
        whole = self.taken(start, 1)
        for byte in range(1, bits.bytes):
            upper = lower.apply(logical.MulOp, self.taken(start + byte, 1), 256**byte)
            whole = lower.apply(logical.AddOp, whole, upper)
        stored = lower.add(logical.BitcastOp(lower.cast(whole, bits, "bits"), factor.stored), "stored")
        value = lower.cast(stored, element_named("f32"), "factor")
        if factor.number is None:
            return value
        number = self.number(factor.number(part), 1)
        if factor.signed:
            number = lower.cast(number, element_named("i8"), "signed")
        return lower.apply(logical.MulOp, value, lower.cast(number, element_named("f32"), "number"))


def _below(lower: Lowering, value: SSAValue, bound: int) -> SSAValue:
    """The rest that a division by `bound` leaves of numbers that are not negative."""
    whole = lower.apply(logical.MulOp, lower.apply(logical.DivOp, value, bound), bound)
    return lower.apply(logical.SubOp, value, whole)


def _dequantize_blocks(lower: Lowering, op: logical.DequantizeBlocksOp) -> SSAValue:
    """Part by part: ``scale * (code - offset)``, and the minimum."""
    scheme, bits = BLOCK_SCHEMES[op.scheme.data], BLOCK_BITS[op.scheme.data]
    sizes = op.info.shape
    count = prod(sizes) // scheme.length
    packed = lower.reshape(op.packed, (count, scheme.nbytes))
    blocks = _Blocks(lower, lower.cast(packed, element_named("i32"), "bytes"))
    parts = [_part(lower, blocks, bits, part) for part in range(scheme.length // bits.part)]
    joined = parts[0] if len(parts) == 1 else lower.add(logical.ConcatOp(parts, 1), "parts")
    return lower.reshape(joined, sizes)


def _part(lower: Lowering, blocks: _Blocks, bits: BlockBits, part: int) -> SSAValue:
    """The elements of a part of every block: f32[blocks, elements]."""
    runs = [blocks.number(bits.codes(part * bits.part // RUN + run), RUN) for run in range(bits.part // RUN)]
    codes = runs[0] if len(runs) == 1 else lower.add(logical.ConcatOp(runs, 1), "codes")
    if bits.flips:
        codes = _below(lower, lower.apply(logical.AddOp, codes, bits.flips), 2 * bits.flips)
    if bits.offset:
        codes = lower.apply(logical.SubOp, codes, bits.offset)
    if bits.floats is not None:
        codes = lower.add(
            logical.BitcastOp(lower.cast(codes, element_named("u8"), "bits"), bits.floats), "floats"
        )
    wide, sizes = lower.cast(codes, element_named("f32"), "wide"), (blocks.count, bits.part)
    scale = lower.reshape(blocks.factor(bits.scale, part), (blocks.count,))
    value = lower.apply(logical.MulOp, lower.broadcast(scale, (0,), sizes, "scale"), wide)
    if bits.minimum is None:
        return value
    minimum = lower.reshape(blocks.factor(bits.minimum, part), (blocks.count,))
    add = logical.AddOp if bits.sign > 0 else logical.SubOp
    return lower.apply(add, value, lower.broadcast(minimum, (0,), sizes, "minimum"))


def _matmul_blocks(lower: Lowering, op: logical.MatmulBlocksOp) -> SSAValue:
    """The product with the widened weight, in the type of x; of the matrices that are chosen, with each row as a
    column."""
    element = tensor_info(op.operand.type).element
    if op.indices is None:
        weight = lower.add(logical.DequantizeBlocksOp(op.packed, op.scheme.data), "weight")
        weight = lower.cast(weight, element, "narrow")
        return lower.add(logical.MatmulOp(op.operand, weight, transpose_b=True), "")
    chosen = lower.add(logical.GatherOp(op.packed, op.indices, 0), "chosen")
    weight = lower.add(logical.DequantizeBlocksOp(chosen, op.scheme.data), "weight")
    weight = lower.cast(weight, element, "narrow")
    sizes = tensor_info(op.operand.type).sizes
    product = lower.add(logical.MatmulOp(weight, lower.reshape(op.operand, [*sizes, 1])), "column")
    return lower.reshape(product, op.info.sizes)


def _rounded_matmul_blocks(lower: Lowering, op: logical.RoundedMatmulBlocksOp) -> SSAValue:
    """x to multiples of its steps, and a product of those."""
    x, together = op.operand, BLOCK_BITS[op.scheme.data].rounded_together
    sizes = tensor_info(x.type).sizes
    groups = (*sizes[:-1], tensor_info(x.type).shape[-1] // together)
    dims = tuple(range(len(groups)))
    parts = lower.reshape(x, (*groups, together), "parts")
    largest = lower.add(logical.ReduceMaxOp(lower.apply(logical.AbsOp, parts), [len(groups)]), "largest")
    largest = lower.apply(logical.MaxOp, largest, LEAST_MAGNITUDE, name="largest")
    inverse = lower.apply(logical.DivOp, lower.splat(127.0, largest, "steps"), largest, name="inverse")
    step = lower.apply(logical.DivOp, largest, 127.0, name="step")
    wide = [lower.broadcast(each, dims, (*groups, together), "wide") for each in (inverse, step)]
    whole = lower.apply(logical.RoundOp, lower.apply(logical.MulOp, parts, wide[0]))
    multiples = lower.reshape(lower.apply(logical.MulOp, whole, wide[1]), sizes, "multiples")
    return lower.add(logical.MatmulBlocksOp(multiples, op.packed, op.scheme.data), "")


FORMULAS: Formulas = {
    logical.DequantizeBlocksOp: _dequantize_blocks,
    logical.MatmulBlocksOp: _matmul_blocks,
    logical.RoundedMatmulBlocksOp: _rounded_matmul_blocks,
}
