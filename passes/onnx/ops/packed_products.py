"""ONNX Runtime's product with a weight of 4 or 8 bits, MatMulNBits, as one with a weight in blocks.

The weight's codes, scales and zero points are tensors of their own. They are laid out as rows of blocks of one of our
schemes, which follows from weights alone, so a program does it once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.block_schemes import Scheme, scheme_of_groups
from aicf.dialects.types import element_named, tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row

_F32, _I32, _U8 = map(element_named, ("f32", "i32", "u8"))
_HALF = 16
"""Columns whose codes of 4 bits are the low bits of bytes; the high ones are those of as many after them."""


@dataclass(frozen=True)
class _Sizes:
    """Of a weight [n, k] in groups of `group` columns, the last of which may be longer than what is left of k.

    Its scheme has groups of `part` columns.
    """

    n: int
    k: int
    group: int
    bits: int
    scheme: Scheme
    part: int

    @property
    def groups(self) -> int:
        return -(-self.k // self.group)

    @property
    def parts(self) -> int:
        """Groups of the scheme in a row."""
        return self.k // self.part

    @property
    def blocks(self) -> int:
        """Of a row."""
        return self.k // self.scheme.length

    @property
    def group_bytes(self) -> int:
        return self.group * self.bits // 8


@row("MatMulNBits", domain="com.microsoft")
def _matmul_n_bits(node: Node) -> Result:
    """A @ B.T for B [N, K] of 4 or 8 bits in groups along K, each with a scale and a zero point.

    Without zero points these are half of what codes can be, 8 or 128.
    """
    sizes = _checked_sizes(node)
    scale = node.cast(_of_groups(node, node.operand(2), sizes, "scales"), _F32, "scales")
    zero = _zero_points(node, sizes)
    minimum = node.apply(logical.NegOp, node.apply(logical.MulOp, scale, zero))
    factors = [_bytes_of(node, _of_parts(node, each, sizes)) for each in (scale, minimum)]
    pieces = [_by_block(node, each, sizes) for each in (*factors, _bytes_of_codes(node, sizes))]
    blocks = node.add(logical.ConcatOp(pieces, 2), "blocks")
    packed = node.reshape(blocks, (sizes.n, sizes.blocks * sizes.scheme.nbytes), "packed")
    weight = node.add(logical.DequantizeBlocksOp(packed, sizes.scheme.name), "weight")
    x = node.cast(node.operand(0), _F32, "x")
    product = node.cast(node.apply(logical.MatmulOp, x, weight, transpose_b=True), node.element(0), "product")
    return node.elementwise(logical.AddOp, product, node.operand(5)) if node.has(5) else product


def _checked_sizes(node: Node) -> _Sizes:
    """The sizes that attributes state. Raises UnsupportedOp for other bits and groups, and for reordered columns."""
    attributes = node.attributes
    n, k, group = (attributes.int(name, 0) for name in ("N", "K", "block_size"))
    if (bits := attributes.int("bits", 4)) not in (4, 8):
        raise node.unsupported(f"bits is {bits}; weights of 4 or 8 bits are read")
    found = scheme_of_groups(f"u{bits}", group, k) if min(n, k, group) > 0 else None
    if found is None:
        raise node.unsupported(
            f"N is {n}, K is {k} and block_size {group}; block_size is a multiple of 16 and K one of {128 // bits}"
        )
    sizes = _Sizes(n, k, group, bits, *found)
    if node.has(4):
        raise node.unsupported("g_idx reorders the columns; quantise without reordering (desc_act)")
    expected = (n, sizes.groups, sizes.group_bytes)
    if node.shape(1) != expected or node.element(1) != _U8:
        raise node.invalid(f"B is {node.type(1)}; its attributes ask for u8 {list(expected)}")
    if len(node.shape(0)) < 2 or node.shape(0)[-1] != k:
        raise node.invalid(f"A is {node.type(0)}; it is [..., M, {k}]")
    return sizes


def _by_block(node: Node, value: SSAValue, sizes: _Sizes) -> SSAValue:
    """Bytes of a row as those of its blocks: u8[n, blocks, bytes]."""
    each = prod(tensor_info(value.type).shape) // (sizes.n * sizes.blocks)
    return node.reshape(value, (sizes.n, sizes.blocks, each), "by_block")


def _of_groups(node: Node, value: SSAValue, sizes: _Sizes, name: str) -> SSAValue:
    """One number for each group, which may be flat: [n, groups]."""
    return node.reshape(value, (sizes.n, sizes.groups), name)


def _zero_points(node: Node, sizes: _Sizes) -> SSAValue:
    """f32[n, groups]: given as they are, or as u8, those of 4 bits two in a byte, the lower bits first."""
    if not node.has(3):
        scales = _of_groups(node, node.operand(2), sizes, "like")
        half = float(1 << (sizes.bits - 1))
        return node.splat(half, node.cast(scales, _F32, "like"), "zero_points")
    if node.element(3) != _U8 or sizes.bits == 8:
        return node.cast(_of_groups(node, node.operand(3), sizes, "zero_points"), _F32, "zero_points")
    rows = node.reshape(node.operand(3), (sizes.n, -(-sizes.groups // 2)), "zero_points")
    codes = _codes(node, rows)
    return node.cast(
        node.add(logical.SliceOp(codes, [0, 0], [-1, sizes.groups]), "zero_points"), _F32, "zeros"
    )


def _codes(node: Node, rows: SSAValue) -> SSAValue:
    """The codes of rows of bytes, two of each, the lower bits first: u8[n, 2 * bytes]."""
    n, count = tensor_info(rows.type).shape
    high = node.apply(logical.DivOp, rows, 16)
    low = node.apply(logical.SubOp, rows, node.apply(logical.MulOp, high, 16))
    pairs = [node.reshape(each, (n, count, 1), "nibbles") for each in (low, high)]
    return node.reshape(node.add(logical.ConcatOp(pairs, 2), "nibbles"), (n, 2 * count), "codes")


def _bytes_of_codes(node: Node, sizes: _Sizes) -> SSAValue:
    """The codes as blocks have them, of 32 of 4 bits the first half in the lower bits: u8[n, k * bits / 8]."""
    rows = node.reshape(node.operand(1), (sizes.n, sizes.groups * sizes.group_bytes), "rows")
    every = rows if sizes.bits == 8 else _codes(node, rows)
    codes = node.add(logical.SliceOp(every, [0, 0], [-1, sizes.k]), "codes")
    if sizes.bits == 8:
        return codes
    count = sizes.k // (2 * _HALF)
    pairs = node.reshape(codes, (sizes.n, count, 2, _HALF), "pairs")
    halves = [
        node.reshape(
            node.add(logical.SliceOp(pairs, [0, 0, half, 0], [-1, -1, 1, -1]), "half"),
            (sizes.n, count, _HALF),
            "half",
        )
        for half in range(2)
    ]
    return node.apply(logical.AddOp, halves[0], node.apply(logical.MulOp, halves[1], 16))


def _of_parts(node: Node, value: SSAValue, sizes: _Sizes) -> SSAValue:
    """Numbers of groups, for each of the scheme's: f32[n, parts]."""
    each = sizes.group // sizes.part
    spread = node.broadcast(value, (0, 1), (sizes.n, sizes.groups, each), "spread")
    whole = node.reshape(spread, (sizes.n, sizes.groups * each), "parts")
    return node.add(logical.SliceOp(whole, [0, 0], [-1, sizes.parts]), "parts")


def _bytes_of(node: Node, value: SSAValue) -> SSAValue:
    """The bytes of f32, the lowest first: u8[n, parts, 4]."""
    bits = node.add(logical.BitcastOp(value, _I32), "bits")
    n, parts = tensor_info(value.type).shape
    found: list[SSAValue] = []
    for byte in range(4):
        moved = node.apply(logical.FloorDivOp, bits, 1 << 8 * byte) if byte else bits
        found.append(node.reshape(node.cast(moved, _U8, "byte"), (n, parts, 1), "byte"))
    return node.add(logical.ConcatOp(found, 2), "bytes")
