# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Products of warps and of threads on whole tiles of registers, and what brings tiles from and to shared memory."""

from __future__ import annotations

import itertools
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

from aicf.backends.cuda.compiler.ptx.intrinsics import (
    CONSTRAINT,
    LLVM,
    NUMBA,
    PTX_BYTES,
    Intrinsic,
    f32,
    literals_of,
    u32,
    value_asm,
    void_asm,
)

# Matrices of 8 x 8 halves

load_matrix_x4 = value_asm(
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u32"], memory=True
)
load_matrix_x4_transposed = value_asm(
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u32"], memory=True
)
store_matrix_x4 = void_asm(
    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1,$2,$3,$4};", ["u32", "u32", "u32", "u32", "u32"]
)


def _mma(dtype: str) -> Intrinsic:
    text = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 "
        "{$0,$1,$2,$3}, {$8,$9,$10,$11}, {$12,$13}, {$0,$1,$2,$3};"
    )
    return value_asm(text, ["f32"] * 4, [("f32", 4), *["u32"] * 6], effect=False, tied=0)


mma_f16, mma_bf16 = _mma("f16"), _mma("bf16")
"""Warp product 16x8x16: `mma(accumulator of 4, a0, a1, a2, a3, b0, b1)`."""


def _ldmatrix(builder: Any, addresses: Any, transposed: bool) -> Any:
    word = ir.IntType(32)
    text = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if transposed else ''}.shared.b16 {{$0,$1,$2,$3}}, [$4];"
    function = ir.FunctionType(ir.LiteralStructType([word] * 4), [word])
    load = ir.InlineAsm(function, text, "=r,=r,=r,=r,r,~{memory}", side_effect=True)
    loaded = [builder.call(load, [address]) for address in addresses]
    return cgutils.pack_array(builder, [builder.extract_value(one, i) for one in loaded for i in range(4)])


@intrinsic
def load_matrices(typingctx: Any, address: Any, count: Any, step: Any) -> Any:
    """`load_matrices(address, n, step)`, numbers literal: n `load_matrix_x4`, `step` bytes apart; 4 n registers."""
    if (literals := literals_of(count, step)) is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        steps = [ir.Constant(ir.IntType(32), i * literals[1]) for i in range(literals[0])]
        return _ldmatrix(builder, [builder.add(values[0], by) for by in steps], False)

    return types.UniTuple(u32, 4 * literals[0])(u32, count, step), codegen


@intrinsic
def load_matrices_transposed(typingctx: Any, address: Any, offsets: Any) -> Any:
    """`load_matrix_x4_transposed` at `address` plus each of a tuple of n offsets; 4 n registers."""
    if not isinstance(offsets, types.UniTuple):
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        steps = [builder.extract_value(values[1], i) for i in range(offsets.count)]
        return _ldmatrix(builder, [builder.add(values[0], by) for by in steps], True)

    return types.UniTuple(u32, 4 * offsets.count)(u32, offsets), codegen


@intrinsic
def load_words(typingctx: Any, address: Any, offsets: Any, count: Any, side_by_side: Any, deeper: Any) -> Any:
    """`load_words(address, offsets, n, s, deeper)`, numbers literal: what `load_matrices_transposed` is for 32-bit
    elements, word by word. Reads n groups of 8 neighbours at `address` plus each of the offsets, from the first again
    where these end, and every group a second time `deeper` bytes on; 2 n registers, s groups before their seconds."""
    literals = literals_of(count, side_by_side, deeper)
    if literals is None or not isinstance(offsets, types.UniTuple):
        return None
    number, together, second = literals

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(32)
        function = ir.FunctionType(word, [word])
        load = ir.InlineAsm(function, "ld.shared.b32 $0, [$1];", "=r,r,~{memory}", side_effect=True)
        starts = [builder.add(values[0], builder.extract_value(values[1], i)) for i in range(offsets.count)]
        loaded: list[Any] = []
        for first in range(0, number, together):
            for skip in (0, second):
                for group in range(first, first + together):
                    again, offset = divmod(group, offsets.count)
                    by = ir.Constant(word, again * offsets.count * 32 + skip)
                    loaded.append(builder.call(load, [builder.add(starts[offset], by)]))
        return cgutils.pack_array(builder, loaded)

    return types.UniTuple(u32, 2 * number)(u32, offsets, count, side_by_side, deeper), codegen


@intrinsic
def rounded_tf32(typingctx: Any, words: Any) -> Any:
    """The bits of f32 numbers rounded to TF32: to the nearest, halves away from zero."""
    if not isinstance(words, types.UniTuple):
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = ir.IntType(32)
        function = ir.FunctionType(word, [word])
        text = "{ .reg .f32 x; mov.b32 x, $1; cvt.rna.tf32.f32 $0, x; }"
        cut = ir.InlineAsm(function, text, "=r,r", side_effect=False)
        given = [builder.extract_value(values[0], i) for i in range(words.count)]
        return cgutils.pack_array(builder, [builder.call(cut, [each]) for each in given])

    return words(words), codegen


def mma_tile_of(a_type: str, b_type: str, depth: int, sums_type: str = "f32") -> Intrinsic:
    """`mma_tile` of operands of these types, `depth` along k."""
    name = "s32" if sums_type == "i32" else sums_type
    text = (
        f"mma.sync.aligned.m16n8k{depth}.row.col.{name}.{a_type}.{b_type}.{name} "
        "{$0,$1,$2,$3}, {$8,$9,$10,$11}, {$12,$13}, {$0,$1,$2,$3};"
    )
    result, letter = LLVM[sums_type], CONSTRAINT[sums_type]
    constraints = f"={letter}," * 4 + "0,1,2,3,r,r,r,r,r,r"

    @intrinsic
    def mma_tile(typingctx: Any, accumulator: Any, a: Any, b: Any) -> Any:
        if not all(isinstance(given, types.UniTuple) for given in (accumulator, a, b)):
            return None
        rows, columns = a.count // 4, b.count // 2

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word = ir.IntType(32)
            function = ir.FunctionType(ir.LiteralStructType([result] * 4), [result] * 4 + [word] * 6)
            mma = ir.InlineAsm(function, text, constraints, side_effect=False)
            sums, left, right = (
                [builder.extract_value(value, i) for i in range(given.count)]
                for value, given in zip(values, signature.args, strict=True)
            )
            for row in range(rows):
                for column in range(columns):
                    at = 4 * (row * columns + column)
                    parts = (
                        sums[at : at + 4] + left[4 * row : 4 * row + 4] + right[2 * column : 2 * column + 2]
                    )
                    made = builder.call(mma, parts)
                    sums[at : at + 4] = [builder.extract_value(made, i) for i in range(4)]
            return cgutils.pack_array(builder, sums)

        return accumulator(accumulator, a, b), codegen

    return mma_tile


mma_tile_f16, mma_tile_bf16 = mma_tile_of("f16", "f16", 16), mma_tile_of("bf16", "bf16", 16)
mma_tile_tf32 = mma_tile_of("tf32", "tf32", 8)
"""All products of a warp's tile for 16 values of k, 8 of TF32, 32 of 8 bits: `mma_tile(accumulator, a, b)`; 4
registers of a per 16 rows, 2 of b per 8 columns, 4 of the accumulator per 16x8, columns innermost."""

for (_a, _a_type), (_b, _b_type) in itertools.product(PTX_BYTES["i32"].items(), repeat=2):
    # mma_tile_A_B: sums are i32
    globals()[f"mma_tile_{_a}_{_b}"] = mma_tile_of(_a_type, _b_type, 32, "i32")


def _zeros(dtype: str) -> Intrinsic:
    @intrinsic
    def zeros_of(typingctx: Any, count: Any) -> Any:
        if (literals := literals_of(count)) is None:
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return cgutils.pack_array(builder, [ir.Constant(LLVM[dtype], 0)] * literals[0])

        return types.UniTuple(NUMBA[dtype], literals[0])(count), codegen

    return zeros_of


zeros_f32, zeros_f64, zeros_i32, zeros_i64 = map(_zeros, ("f32", "f64", "i32", "i64"))


@intrinsic
def multiply_add(typingctx: Any, accumulator: Any, a: Any, b: Any) -> Any:
    """Outer product of two tuples added to sums, columns (b) innermost; floats with one rounding, integers wrap."""
    if not all(isinstance(given, types.UniTuple) for given in (accumulator, a, b)):
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        sums, left, right = (
            [builder.extract_value(value, i) for i in range(given.count)]
            for value, given in zip(values, signature.args, strict=True)
        )
        for row, x in enumerate(left):
            for column, y in enumerate(right):
                at = row * len(right) + column
                if isinstance(accumulator.dtype, types.Float):
                    sums[at] = builder.fma(x, y, sums[at])
                else:
                    sums[at] = builder.add(builder.mul(x, y), sums[at])
        return cgutils.pack_array(builder, sums)

    return accumulator(accumulator, a, b), codegen


_FOUR = {"f32": ("v4.f32", 1), "i32": ("v4.u32", 1), "f64": ("v2.f64", 2), "i64": ("v2.u64", 2)}
"""Access of four elements in shared memory: instruction suffix, and how many it takes."""


def _load_groups(dtype: str, space: str) -> Intrinsic:
    suffix, pieces = _FOUR[dtype]
    wide = 4 // pieces

    @intrinsic
    def load_groups(typingctx: Any, address: Any, count: Any, step: Any) -> Any:
        if (literals := literals_of(count, step)) is None:
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word, element = ir.IntType(32), LLVM[dtype]
            registers = ",".join(f"${i}" for i in range(wide))
            text = f"ld.{space}.{suffix} {{{registers}}}, [${wide}];"
            constraints = f"={CONSTRAINT[dtype]}," * wide + "r,~{memory}"
            function = ir.FunctionType(ir.LiteralStructType([element] * wide), [word])
            load = ir.InlineAsm(function, text, constraints, side_effect=True)
            out: list[Any] = []
            for group in range(literals[0]):
                for piece in range(pieces):
                    offset = builder.add(values[0], ir.Constant(word, group * literals[1] + 16 * piece))
                    made = builder.call(load, [offset])
                    out += [builder.extract_value(made, i) for i in range(wide)]
            return cgutils.pack_array(builder, out)

        return types.UniTuple(NUMBA[dtype], 4 * literals[0])(u32, count, step), codegen

    return load_groups


def _store_groups(dtype: str) -> Intrinsic:
    suffix, pieces = _FOUR[dtype]
    wide = 4 // pieces

    @intrinsic
    def store_groups(typingctx: Any, address: Any, sums: Any, columns: Any, row_bytes: Any) -> Any:
        if (literals := literals_of(columns, row_bytes)) is None:
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word, element = ir.IntType(32), LLVM[dtype]
            registers = ",".join(f"${i + 1}" for i in range(wide))
            constraints = "r" + f",{CONSTRAINT[dtype]}" * wide + ",~{memory}"
            function = ir.FunctionType(ir.VoidType(), [word] + [element] * wide)
            store = ir.InlineAsm(
                function, f"st.shared.{suffix} [$0], {{{registers}}};", constraints, side_effect=True
            )
            size = 16 // wide
            for first in range(0, sums.count, wide):
                row, column = divmod(first, literals[0])
                # Groups of 4 rows are 16 apart, groups of 4 columns 32: a warp is 4 x 8 lanes.
                offset = (row // 4 * 16 + row % 4) * literals[1] + (column // 4 * 32 + column % 4) * size
                given = [builder.extract_value(values[1], first + i) for i in range(wide)]
                builder.call(store, [builder.add(values[0], ir.Constant(word, offset)), *given])
            return context.get_dummy_value()

        return types.void(u32, sums, columns, row_bytes), codegen

    return store_groups


for _dtype in _FOUR:
    globals()[f"load_groups_{_dtype}"] = _load_groups(_dtype, "shared")
    globals()[f"load_cluster_groups_{_dtype}"] = _load_groups(_dtype, "shared::cluster")
    globals()[f"store_groups_{_dtype}"] = _store_groups(_dtype)


def _store_two(sums: Any, space: str) -> Any:
    """The store of two neighbouring sums of f32, or of i32."""
    kind, letter, element = (
        ("f32", "f", ir.FloatType()) if sums.dtype == f32 else ("s32", "r", ir.IntType(32))
    )
    function = ir.FunctionType(ir.VoidType(), [ir.IntType(32), element, element])
    text = f"st.{space}.v2.{kind} [$0], {{$1,$2}};"
    return ir.InlineAsm(function, text, f"r,{letter},{letter},~{{memory}}", side_effect=True)


@intrinsic
def store_sums(typingctx: Any, address: Any, accumulator: Any, columns: Any, row_bytes: Any) -> Any:
    """`store_sums(address, accumulator, n, row_bytes)`, both numbers literal: the sums of a warp's tile that this lane
    holds, n tiles of 8 columns wide, to rows of f32 or i32 in shared memory; `address` is the address of the first."""
    if not isinstance(columns, types.IntegerLiteral) or not isinstance(row_bytes, types.IntegerLiteral):
        return None
    wide, step = columns.literal_value, row_bytes.literal_value

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, store = ir.IntType(32), _store_two(accumulator, "shared")
        for first in range(0, signature.args[1].count, 2):
            tile, lower = divmod(first, 4)
            offset = (tile // wide * 16 + lower * 4) * step + tile % wide * 32
            sums = [builder.extract_value(values[1], first + i) for i in range(2)]
            builder.call(store, [builder.add(values[0], ir.Constant(word, offset)), *sums])
        return context.get_dummy_value()

    return types.void(u32, accumulator, columns, row_bytes), codegen


@intrinsic
def push_sums(typingctx: Any, targets: Any, accumulator: Any, columns: Any) -> Any:
    """As `store_sums`, into the shared memory of blocks of a cluster: `targets` are the addresses of this lane's first
    sums in every 8 rows of the tile, as `map_shared` gives them."""
    if not isinstance(targets, types.UniTuple) or (literals := literals_of(columns)) is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, store = ir.IntType(32), _store_two(accumulator, "shared::cluster")
        for first in range(0, signature.args[1].count, 2):
            tile, lower = divmod(first, 4)
            target = builder.extract_value(values[0], tile // literals[0] * 2 + lower // 2)
            offset = builder.add(target, ir.Constant(word, tile % literals[0] * 32))
            builder.call(store, [offset, *(builder.extract_value(values[1], first + i) for i in range(2))])
        return context.get_dummy_value()

    return types.void(targets, accumulator, columns), codegen


@intrinsic
def zeros(typingctx: Any, count: Any) -> Any:
    """`zeros(n)`, n literal: a tuple of n f32 zeros, an accumulator for matrix products."""
    if not isinstance(count, types.IntegerLiteral):
        return None
    number = count.literal_value

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return cgutils.pack_array(builder, [ir.Constant(ir.FloatType(), 0.0)] * number)

    return types.UniTuple(f32, number)(count), codegen


@intrinsic
def rotated(typingctx: Any, values: Any, count: Any) -> Any:
    """`rotated(tuple, n)`, n literal: the tuple with its first n elements moved to the end."""
    if not isinstance(values, types.UniTuple) or not isinstance(count, types.IntegerLiteral):
        return None
    first = count.literal_value

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [builder.extract_value(arguments[0], i) for i in range(values.count)]
        return cgutils.pack_array(builder, parts[first:] + parts[:first])

    return values(values, count), codegen
