# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Every PTX instruction that our kernels use, as Numba intrinsics, and the types they are written with. Nothing else.

Addresses are u64 (global) or u32 (shared, as `shared_base` gives them). An intrinsic is made by `void_asm` or
`value_asm` from PTX text with operands $0, $1, ...: results first. Imported only where code is generated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import (
    cuda as cuda,
)  # templates write cuda.threadIdx.x, cuda.syncthreads(), cuda.shfl_xor_sync(...)
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

f32, f64 = types.float32, types.float64
i32, i64, u32, u64 = types.int32, types.int64, types.uint32, types.uint64
i16, u16, i8, u8 = types.int16, types.uint16, types.int8, types.uint8

_NUMBA = {"f32": f32, "f64": f64, "u32": u32, "i32": i32, "i64": i64, "u64": u64, "u16": u16}
_LLVM = {
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
    "u32": ir.IntType(32),
    "i32": ir.IntType(32),
    "i64": ir.IntType(64),
    "u64": ir.IntType(64),
    "u16": ir.IntType(16),
}
_CONSTRAINT = {"f32": "f", "f64": "d", "u32": "r", "i32": "r", "i64": "l", "u64": "l", "u16": "h"}

Intrinsic = Callable[..., Any]


def _with_arity(count: int, typer: Callable[..., Any]) -> Intrinsic:
    """Numba reads the number of arguments from the signature, so it is written out."""
    names = "".join(f", a{i}" for i in range(count))
    namespace: dict[str, Any] = {"typer": typer}
    exec(f"def typed(typingctx{names}):\n    return typer(typingctx{names})\n", namespace)
    return intrinsic(namespace["typed"])


def void_asm(text: str, arguments: Sequence[str], *, memory: bool = True) -> Intrinsic:
    """An intrinsic without result.

    Args:
        text: PTX; $i is argument i.
        arguments: Types by name (`u64`, `f32`, ...).
        memory: Whether other memory accesses may not move across it.
    """
    numba = [_NUMBA[name] for name in arguments]

    def typer(typingctx: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            constraints = [_CONSTRAINT[name] for name in arguments] + (["~{memory}"] if memory else [])
            function = ir.FunctionType(ir.VoidType(), [_LLVM[name] for name in arguments])
            builder.call(ir.InlineAsm(function, text, ",".join(constraints), side_effect=True), values)
            return context.get_dummy_value()

        return types.void(*numba), codegen

    return _with_arity(len(arguments), typer)


def value_asm(
    text: str,
    results: Sequence[str],
    arguments: Sequence[str | tuple[str, int]],
    *,
    effect: bool = True,
    memory: bool = False,
    tied: int | None = None,
) -> Intrinsic:
    """An intrinsic with one result (a scalar) or several (a tuple).

    Args:
        text: PTX; results are $0 .., then the arguments with tuples laid out flat.
        results: Types by name.
        arguments: Types by name; `(name, n)` is a tuple of n.
        effect: Whether equal calls may not be merged or moved.
        memory: Whether other memory accesses may not move across it.
        tied: Number of the tuple argument that starts in the result registers (an accumulator).
    """
    numba = [types.UniTuple(_NUMBA[a[0]], a[1]) if isinstance(a, tuple) else _NUMBA[a] for a in arguments]
    result = _NUMBA[results[0]] if len(results) == 1 else types.UniTuple(_NUMBA[results[0]], len(results))

    def typer(typingctx: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            flat: list[Any] = []
            kinds: list[Any] = []
            constraints = ["=" + _CONSTRAINT[name] for name in results]
            for place, (argument, value) in enumerate(zip(arguments, values, strict=True)):
                if isinstance(argument, tuple):
                    for i in range(argument[1]):
                        flat.append(builder.extract_value(value, i))
                        kinds.append(_LLVM[argument[0]])
                        constraints.append(str(i) if place == tied else _CONSTRAINT[argument[0]])
                else:
                    flat.append(value)
                    kinds.append(_LLVM[argument])
                    constraints.append(_CONSTRAINT[argument])
            constraints += ["~{memory}"] if memory else []
            out = [_LLVM[name] for name in results]
            function = ir.FunctionType(out[0] if len(out) == 1 else ir.LiteralStructType(out), kinds)
            made = builder.call(ir.InlineAsm(function, text, ",".join(constraints), side_effect=effect), flat)
            if len(out) == 1:
                return made
            return cgutils.pack_array(builder, [builder.extract_value(made, i) for i in range(len(out))])

        return result(*numba), codegen

    return _with_arity(len(arguments), typer)


# Programmatic dependent launch

wait_for_predecessors = void_asm("griddepcontrol.wait;", [])
launch_dependents = void_asm("griddepcontrol.launch_dependents;", [])

# Global memory

load_f32x4 = value_asm("ld.global.v4.f32 {$0,$1,$2,$3}, [$4];", ["f32"] * 4, ["u64"])
load_u32x4 = value_asm("ld.global.v4.u32 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u64"])
load_u32x2 = value_asm("ld.global.v2.u32 {$0,$1}, [$2];", ["u32"] * 2, ["u64"])
load_u32 = value_asm("ld.global.u32 $0, [$1];", ["u32"], ["u64"])
load_u16 = value_asm("ld.global.u16 $0, [$1];", ["u16"], ["u64"])
load_u8 = value_asm("ld.global.u8 $0, [$1];", ["u32"], ["u64"])
load_u64 = value_asm("ld.global.u64 $0, [$1];", ["u64"], ["u64"])
load_f32 = value_asm("ld.global.f32 $0, [$1];", ["f32"], ["u64"])
load_f64 = value_asm("ld.global.f64 $0, [$1];", ["f64"], ["u64"])
load_i8 = value_asm("ld.global.s8 $0, [$1];", ["i32"], ["u64"])
load_i16 = value_asm("ld.global.s16 $0, [$1];", ["i32"], ["u64"])
load_i32 = value_asm("ld.global.s32 $0, [$1];", ["i32"], ["u64"])
load_i64 = value_asm("ld.global.s64 $0, [$1];", ["i64"], ["u64"])
stream_u32x4 = value_asm(
    "ld.relaxed.gpu.global.L1::no_allocate.L2::256B.v4.u32 {$0,$1,$2,$3}, [$4];",
    ["u32"] * 4,
    ["u64"],
    memory=True,
)
"""A weight load that keeps its place before `wait_for_predecessors`."""
poll_u64 = value_asm("ld.relaxed.gpu.global.u64 $0, [$1];", ["u64"], ["u64"], memory=True)
"""A word that another block of the same launch may be writing."""
publish_u64 = void_asm("st.relaxed.gpu.global.u64 [$0], $1;", ["u64", "u64"])
"""A word that other blocks of the same launch poll."""
store_u32x4 = void_asm("st.global.v4.u32 [$0], {$1,$2,$3,$4};", ["u64", "u32", "u32", "u32", "u32"])
store_u32x2 = void_asm("st.global.v2.u32 [$0], {$1,$2};", ["u64", "u32", "u32"])
store_f32x4 = void_asm("st.global.v4.f32 [$0], {$1,$2,$3,$4};", ["u64", "f32", "f32", "f32", "f32"])
store_u32 = void_asm("st.global.u32 [$0], $1;", ["u64", "u32"])
store_u16 = void_asm("st.global.u16 [$0], $1;", ["u64", "u16"])
store_u8 = void_asm("st.global.u8 [$0], $1;", ["u64", "u32"])
store_u64 = void_asm("st.global.u64 [$0], $1;", ["u64", "u64"])
store_f32 = void_asm("st.global.f32 [$0], $1;", ["u64", "f32"])
store_f64 = void_asm("st.global.f64 [$0], $1;", ["u64", "f64"])
store_i32 = void_asm("st.global.s32 [$0], $1;", ["u64", "i32"])
store_i64 = void_asm("st.global.s64 [$0], $1;", ["u64", "i64"])
atomic_max_i32 = void_asm("red.global.max.s32 [$0], $1;", ["u64", "i32"])
load_f32x2 = value_asm("ld.global.v2.f32 {$0,$1}, [$2];", ["f32"] * 2, ["u64"])
load_f64x2 = value_asm("ld.global.v2.f64 {$0,$1}, [$2];", ["f64"] * 2, ["u64"])
load_i64x2 = value_asm("ld.global.v2.s64 {$0,$1}, [$2];", ["i64"] * 2, ["u64"])
store_f32x2 = void_asm("st.global.v2.f32 [$0], {$1,$2};", ["u64", "f32", "f32"])
store_f64x2 = void_asm("st.global.v2.f64 [$0], {$1,$2};", ["u64", "f64", "f64"])
store_i64x2 = void_asm("st.global.v2.s64 [$0], {$1,$2};", ["u64", "i64", "i64"])


def _load_or_zero(load: str, memory: bool) -> Intrinsic:
    """Four words that are loaded where the second argument is not 0, else zeros."""
    text = (
        "{ .reg .pred p; .reg .b32 a,b,c,d; mov.b32 a,0; mov.b32 b,0; mov.b32 c,0; mov.b32 d,0; "
        f"setp.ne.b32 p,$5,0; @p {load} {{a,b,c,d}}, [$4]; "
        "mov.b32 $0,a; mov.b32 $1,b; mov.b32 $2,c; mov.b32 $3,d; }"
    )
    return value_asm(text, ["u32"] * 4, ["u64", "i32"], memory=memory)


load_u32x4_or_zero = _load_or_zero("ld.global.v4.u32", False)
stream_u32x4_or_zero = _load_or_zero("ld.relaxed.gpu.global.L1::no_allocate.L2::256B.v4.u32", True)

# Shared memory

load_shared_f32 = value_asm("ld.shared.f32 $0, [$1];", ["f32"], ["u32"], memory=True)
load_shared_f32x4 = value_asm("ld.shared.v4.f32 {$0,$1,$2,$3}, [$4];", ["f32"] * 4, ["u32"], memory=True)
load_shared_u32x4 = value_asm("ld.shared.v4.u32 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u32"], memory=True)
load_shared_f32x2 = value_asm("ld.shared.v2.f32 {$0,$1}, [$2];", ["f32"] * 2, ["u32"], memory=True)
load_shared_u32 = value_asm("ld.shared.u32 $0, [$1];", ["u32"], ["u32"], memory=True)
load_shared_u16 = value_asm("ld.shared.u16 $0, [$1];", ["u16"], ["u32"], memory=True)
store_shared_f32 = void_asm("st.shared.f32 [$0], $1;", ["u32", "f32"])
store_shared_f32x4 = void_asm("st.shared.v4.f32 [$0], {$1,$2,$3,$4};", ["u32", "f32", "f32", "f32", "f32"])
store_shared_u32x4 = void_asm("st.shared.v4.u32 [$0], {$1,$2,$3,$4};", ["u32", "u32", "u32", "u32", "u32"])
store_shared_u32 = void_asm("st.shared.u32 [$0], $1;", ["u32", "u32"])
store_shared_u16 = void_asm("st.shared.u16 [$0], $1;", ["u32", "u16"])

# Half precision: a u32 holds two elements, the first in the low half

unpack_f16 = value_asm(
    "{ .reg .b16 l,h; mov.b32 {l,h}, $2; cvt.f32.f16 $0,l; cvt.f32.f16 $1,h; }",
    ["f32"] * 2,
    ["u32"],
    effect=False,
)
unpack_bf16 = value_asm(
    "{ shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000; }", ["f32"] * 2, ["u32"], effect=False
)
pack_f16 = value_asm("cvt.rn.f16x2.f32 $0, $2, $1;", ["u32"], ["f32", "f32"], effect=False)
pack_bf16 = value_asm("cvt.rn.bf16x2.f32 $0, $2, $1;", ["u32"], ["f32", "f32"], effect=False)
f16_to_f32 = value_asm("cvt.f32.f16 $0, $1;", ["f32"], ["u16"], effect=False)
bf16_to_f32 = value_asm(
    "{ .reg .b32 t; cvt.u32.u16 t, $1; shl.b32 t, t, 16; mov.b32 $0, t; }", ["f32"], ["u16"], effect=False
)
f32_to_f16 = value_asm("cvt.rn.f16.f32 $0, $1;", ["u16"], ["f32"], effect=False)
f32_to_bf16 = value_asm("cvt.rn.bf16.f32 $0, $1;", ["u16"], ["f32"], effect=False)

# Ampere: asynchronous copies and warp matrix products

copy_async16 = void_asm("cp.async.cg.shared.global [$0], [$1], 16;", ["u32", "u64"])
copy_async16_or_zero = void_asm("cp.async.cg.shared.global [$0], [$1], 16, $2;", ["u32", "u64", "u32"])
"""Copies the first `size` (0 or 16) bytes and fills the rest of the 16 with zeros."""
commit_copies = void_asm("cp.async.commit_group;", [])
wait_copies_0 = void_asm("cp.async.wait_group 0;", [])
wait_copies_1 = void_asm("cp.async.wait_group 1;", [])
wait_copies_2 = void_asm("cp.async.wait_group 2;", [])
wait_copies_3 = void_asm("cp.async.wait_group 3;", [])
load_matrix_x4 = value_asm(
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u32"], memory=True
)
load_matrix_x4_transposed = value_asm(
    "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u32"], memory=True
)


def _mma(dtype: str) -> Intrinsic:
    text = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 "
        "{$0,$1,$2,$3}, {$8,$9,$10,$11}, {$12,$13}, {$0,$1,$2,$3};"
    )
    return value_asm(text, ["f32"] * 4, [("f32", 4), *["u32"] * 6], effect=False, tied=0)


mma_f16, mma_bf16 = _mma("f16"), _mma("bf16")
"""Warp product 16x8x16: `mma(accumulator of 4, a0, a1, a2, a3, b0, b1)`."""

copy_async8_or_zero = void_asm("cp.async.ca.shared.global [$0], [$1], 8, $2;", ["u32", "u64", "u32"])
copy_async4_or_zero = void_asm("cp.async.ca.shared.global [$0], [$1], 4, $2;", ["u32", "u64", "u32"])


@intrinsic
def wait_copies(typingctx: Any, pending: Any) -> Any:
    """`wait_copies(n)`, n literal: waits until at most the last n groups of copies of this thread are under way."""
    if not isinstance(pending, types.IntegerLiteral):
        return None
    text = f"cp.async.wait_group {pending.literal_value};"

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.call(
            ir.InlineAsm(ir.FunctionType(ir.VoidType(), []), text, "~{memory}", side_effect=True), []
        )
        return context.get_dummy_value()

    return types.void(pending), codegen


def _literals(*given: Any) -> list[int] | None:
    """The values of arguments that are literal integers, None if one is not."""
    if not all(isinstance(one, types.IntegerLiteral) for one in given):
        return None
    return [one.literal_value for one in given]


def _cached(width: int) -> str:
    """Copies of 16 bytes may pass by L1, smaller ones may not."""
    return "cg" if width == 16 else "ca"


@intrinsic
def copy_rows(
    typingctx: Any, width: Any, target: Any, source: Any, count: Any, target_step: Any, source_step: Any
) -> Any:
    """`count` copies of `width` (4, 8, 16) bytes, their places in shared and in global memory that many bytes apart."""
    if (literals := _literals(count, target_step, source_step, width)) is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, long = ir.IntType(32), ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word, long])
        text = f"cp.async.{_cached(literals[3])}.shared.global.L2::128B [$0], [$1], {literals[3]};"
        copy = ir.InlineAsm(function, text, "r,l,~{memory}", side_effect=True)
        for i in range(literals[0]):
            place = builder.add(values[1], ir.Constant(word, i * literals[1]))
            builder.call(copy, [place, builder.add(values[2], ir.Constant(long, i * literals[2]))])
        return context.get_dummy_value()

    return types.void(width, u32, u64, count, target_step, source_step), codegen


@intrinsic
def copy_rows_or_zero(
    typingctx: Any,
    width: Any,
    target: Any,
    source: Any,
    rows_left: Any,
    size: Any,
    count: Any,
    target_step: Any,
    source_step: Any,
    row_step: Any,
) -> Any:
    """As `copy_rows`, with zeros past the first `size` bytes, and where i `row_step` is `rows_left` or more."""
    if (literals := _literals(count, target_step, source_step, row_step, width)) is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, long = ir.IntType(32), ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word, long, word])
        text = f"cp.async.{_cached(literals[4])}.shared.global.L2::128B [$0], [$1], {literals[4]}, $2;"
        copy = ir.InlineAsm(function, text, "r,l,r,~{memory}", side_effect=True)
        for i in range(literals[0]):
            inside = builder.icmp_signed("<", ir.Constant(word, i * literals[3]), values[3])
            given = builder.select(inside, values[4], ir.Constant(word, 0))
            place = builder.add(values[1], ir.Constant(word, i * literals[1]))
            builder.call(copy, [place, builder.add(values[2], ir.Constant(long, i * literals[2])), given])
        return context.get_dummy_value()

    return types.void(width, u32, u64, i32, i32, count, target_step, source_step, row_step), codegen


def _widen_rows(suffix: str) -> Intrinsic:
    """As `copy_rows_or_zero` of one element, which a thread loads and stores as a 32-bit integer; nothing where `size`
    is 0."""
    load_text = f"{{ .reg .pred p; setp.ne.b32 p,$2,0; mov.b32 $0,0; @p ld.global.{suffix} $0, [$1]; }}"

    @intrinsic
    def widen_rows(
        typingctx: Any,
        target: Any,
        source: Any,
        rows_left: Any,
        size: Any,
        count: Any,
        target_step: Any,
        source_step: Any,
        row_step: Any,
    ) -> Any:
        if (literals := _literals(count, target_step, source_step, row_step)) is None:
            return None
        word, long = ir.IntType(32), ir.IntType(64)
        load_type, store_type = (
            ir.FunctionType(word, [long, word]),
            ir.FunctionType(ir.VoidType(), [word] * 2),
        )

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            load = ir.InlineAsm(load_type, load_text, "=&r,l,r,~{memory}", side_effect=True)
            store = ir.InlineAsm(store_type, "st.shared.u32 [$0], $1;", "r,r,~{memory}", side_effect=True)
            loaded: list[Any] = []
            for i in range(literals[0]):
                inside = builder.icmp_signed("<", ir.Constant(word, i * literals[3]), values[2])
                given = builder.select(inside, values[3], ir.Constant(word, 0))
                place = builder.add(values[1], ir.Constant(long, i * literals[2]))
                loaded.append(builder.call(load, [place, given]))
            for i, value in enumerate(loaded):
                builder.call(store, [builder.add(values[0], ir.Constant(word, i * literals[1])), value])
            return context.get_dummy_value()

        return types.void(u32, u64, i32, i32, count, target_step, source_step, row_step), codegen

    return widen_rows


widen_rows_i16, widen_rows_i8, widen_rows_u8 = map(_widen_rows, ("s16", "s8", "u8"))


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
    if (literals := _literals(count, step)) is None:
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


def _mma_tile(dtype: str) -> Intrinsic:
    text = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 "
        "{$0,$1,$2,$3}, {$8,$9,$10,$11}, {$12,$13}, {$0,$1,$2,$3};"
    )

    @intrinsic
    def mma_tile(typingctx: Any, accumulator: Any, a: Any, b: Any) -> Any:
        if not all(isinstance(given, types.UniTuple) for given in (accumulator, a, b)):
            return None
        rows, columns = a.count // 4, b.count // 2

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            single, word = ir.FloatType(), ir.IntType(32)
            function = ir.FunctionType(ir.LiteralStructType([single] * 4), [single] * 4 + [word] * 6)
            mma = ir.InlineAsm(function, text, "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r", side_effect=False)
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


mma_tile_f16, mma_tile_bf16 = _mma_tile("f16"), _mma_tile("bf16")
"""All products of a warp's tile for 16 values of k: `mma_tile(accumulator, a, b)`; 4 registers of a per 16 rows, 2 of b
per 8 columns, 4 of the accumulator per 16x8, columns innermost."""


def _zeros(dtype: str) -> Intrinsic:
    @intrinsic
    def zeros_of(typingctx: Any, count: Any) -> Any:
        if (literals := _literals(count)) is None:
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return cgutils.pack_array(builder, [ir.Constant(_LLVM[dtype], 0)] * literals[0])

        return types.UniTuple(_NUMBA[dtype], literals[0])(count), codegen

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
        if (literals := _literals(count, step)) is None:
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word, element = ir.IntType(32), _LLVM[dtype]
            registers = ",".join(f"${i}" for i in range(wide))
            text = f"ld.{space}.{suffix} {{{registers}}}, [${wide}];"
            constraints = f"={_CONSTRAINT[dtype]}," * wide + "r,~{memory}"
            function = ir.FunctionType(ir.LiteralStructType([element] * wide), [word])
            load = ir.InlineAsm(function, text, constraints, side_effect=True)
            out: list[Any] = []
            for group in range(literals[0]):
                for piece in range(pieces):
                    place = builder.add(values[0], ir.Constant(word, group * literals[1] + 16 * piece))
                    made = builder.call(load, [place])
                    out += [builder.extract_value(made, i) for i in range(wide)]
            return cgutils.pack_array(builder, out)

        return types.UniTuple(_NUMBA[dtype], 4 * literals[0])(u32, count, step), codegen

    return load_groups


def _store_groups(dtype: str) -> Intrinsic:
    suffix, pieces = _FOUR[dtype]
    wide = 4 // pieces

    @intrinsic
    def store_groups(typingctx: Any, address: Any, sums: Any, columns: Any, row_bytes: Any) -> Any:
        if (literals := _literals(columns, row_bytes)) is None:
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            word, element = ir.IntType(32), _LLVM[dtype]
            registers = ",".join(f"${i + 1}" for i in range(wide))
            constraints = "r" + f",{_CONSTRAINT[dtype]}" * wide + ",~{memory}"
            function = ir.FunctionType(ir.VoidType(), [word] + [element] * wide)
            store = ir.InlineAsm(
                function, f"st.shared.{suffix} [$0], {{{registers}}};", constraints, side_effect=True
            )
            size = 16 // wide
            for first in range(0, sums.count, wide):
                row, column = divmod(first, literals[0])
                # Groups of 4 rows are 16 apart, groups of 4 columns 32: a warp is 4 x 8 lanes.
                place = (row // 4 * 16 + row % 4) * literals[1] + (column // 4 * 32 + column % 4) * size
                given = [builder.extract_value(values[1], first + i) for i in range(wide)]
                builder.call(store, [builder.add(values[0], ir.Constant(word, place)), *given])
            return context.get_dummy_value()

        return types.void(u32, sums, columns, row_bytes), codegen

    return store_groups


for _dtype in _FOUR:
    globals()[f"load_groups_{_dtype}"] = _load_groups(_dtype, "shared")
    globals()[f"load_cluster_groups_{_dtype}"] = _load_groups(_dtype, "shared::cluster")
    globals()[f"store_groups_{_dtype}"] = _store_groups(_dtype)


@intrinsic
def store_sums(typingctx: Any, address: Any, accumulator: Any, columns: Any, row_bytes: Any) -> Any:
    """`store_sums(address, accumulator, n, row_bytes)`, both numbers literal: the sums of a warp's tile that this lane
    holds, n tiles of 8 columns wide, to rows of f32 in shared memory; `address` is the place of the first."""
    if not isinstance(columns, types.IntegerLiteral) or not isinstance(row_bytes, types.IntegerLiteral):
        return None
    wide, step = columns.literal_value, row_bytes.literal_value

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, single = ir.IntType(32), ir.FloatType()
        function = ir.FunctionType(ir.VoidType(), [word, single, single])
        store = ir.InlineAsm(function, "st.shared.v2.f32 [$0], {$1,$2};", "r,f,f,~{memory}", side_effect=True)
        for first in range(0, signature.args[1].count, 2):
            tile, lower = divmod(first, 4)
            offset = (tile // wide * 16 + lower * 4) * step + tile % wide * 32
            sums = [builder.extract_value(values[1], first + i) for i in range(2)]
            builder.call(store, [builder.add(values[0], ir.Constant(word, offset)), *sums])
        return context.get_dummy_value()

    return types.void(u32, accumulator, columns, row_bytes), codegen


@intrinsic
def push_sums(typingctx: Any, targets: Any, accumulator: Any, columns: Any) -> Any:
    """As `store_sums`, into the shared memory of blocks of a cluster: `targets` are the places of this lane's first
    sums in every 8 rows of the tile, as `map_shared` gives them."""
    if not isinstance(targets, types.UniTuple) or (literals := _literals(columns)) is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, single = ir.IntType(32), ir.FloatType()
        function = ir.FunctionType(ir.VoidType(), [word, single, single])
        text = "st.shared::cluster.v2.f32 [$0], {$1,$2};"
        store = ir.InlineAsm(function, text, "r,f,f,~{memory}", side_effect=True)
        for first in range(0, signature.args[1].count, 2):
            tile, lower = divmod(first, 4)
            target = builder.extract_value(values[0], tile // literals[0] * 2 + lower // 2)
            place = builder.add(target, ir.Constant(word, tile % literals[0] * 32))
            builder.call(store, [place, *(builder.extract_value(values[1], first + i) for i in range(2))])
        return context.get_dummy_value()

    return types.void(targets, accumulator, columns), codegen


@intrinsic
def quotient(typingctx: Any, dividend: Any, divisor: Any) -> Any:
    """Unsigned 32-bit division, without the checks of Python's `//`."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.udiv(*values)

    return u32(u32, u32), codegen


@intrinsic
def remainder(typingctx: Any, dividend: Any, divisor: Any) -> Any:
    """Unsigned 32-bit remainder."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.urem(*values)

    return u32(u32, u32), codegen


# Hopper: warpgroup products, bulk tensor copies, barriers in shared memory


def _wgmma(n: int, dtype: str) -> Intrinsic:
    count = n // 2
    registers = ",".join(f"${i}" for i in range(count))
    a, b, scale = 2 * count, 2 * count + 1, 2 * count + 2
    text = (
        f"{{ .reg .pred p; setp.ne.b32 p, ${scale}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} {{{registers}}}, ${a}, ${b}, p, 1, 1, 0, 0; }}"
    )
    return value_asm(text, ["f32"] * count, [("f32", count), "u64", "u64", "i32"], tied=0)


WGMMA: dict[tuple[int, str], Intrinsic] = {
    (n, dtype): _wgmma(n, dtype) for n in (8, 16, 32, 64, 96, 128, 160, 192, 256) for dtype in ("f16", "bf16")
}
"""By (columns, element type): `wgmma(accumulator, descriptor_a, descriptor_b, keep)`; keep = 0 starts from zero.

Both operands K-major in shared memory."""
for (_n, _dtype), _made in WGMMA.items():
    globals()[f"wgmma_{_n}_{_dtype}"] = _made

wgmma_fence = void_asm("wgmma.fence.sync.aligned;", [])
wgmma_commit = void_asm("wgmma.commit_group.sync.aligned;", [])
wgmma_wait_1 = void_asm("wgmma.wait_group.sync.aligned 1;", [])
fewer_registers_24 = void_asm("setmaxnreg.dec.sync.aligned.u32 24;", [])
fewer_registers_40 = void_asm("setmaxnreg.dec.sync.aligned.u32 40;", [])
more_registers_232 = void_asm("setmaxnreg.inc.sync.aligned.u32 232;", [])
more_registers_240 = void_asm("setmaxnreg.inc.sync.aligned.u32 240;", [])

barrier_init = void_asm("mbarrier.init.shared::cta.b64 [$0], $1;", ["u32", "u32"])
barrier_expect = void_asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", ["u32", "u32"])
barrier_arrive = void_asm("mbarrier.arrive.shared::cta.b64 _, [$0];", ["u32"])
barrier_wait = void_asm(
    "{ .reg .pred p; L_w_${:uid}: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
    "@p bra.uni L_d_${:uid}; bra.uni L_w_${:uid}; L_d_${:uid}: }",
    ["u32", "u32"],
)
fence_barrier_init = void_asm("fence.mbarrier_init.release.cluster;", [])
fence_async_proxy = void_asm("fence.proxy.async.shared::cta;", [])
copy_tensor_2d = void_asm(
    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {$3,$4}], [$2];",
    ["u32", "u64", "u32", "i32", "i32"],
)
"""`copy_tensor_2d(shared, map, barrier, inner index, outer index)`"""

named_barrier = void_asm("bar.sync $0, $1;", ["u32", "u32"])
"""`named_barrier(number 1..15, threads)`: a barrier of part of a block."""
named_arrive = void_asm("bar.arrive $0, $1;", ["u32", "u32"])
"""`named_arrive(number, threads)`: as `named_barrier`, for threads that do not wait."""


def _wgmma_from(n: int, dtype: str, a_from_rows: int, b_from_rows: int) -> Intrinsic:
    """As `_wgmma` with operands along M or N in shared memory (1) instead of along K (0)."""
    count = n // 2
    registers = ",".join(f"${i}" for i in range(count))
    a, b, scale = 2 * count, 2 * count + 1, 2 * count + 2
    text = (
        f"{{ .reg .pred p; setp.ne.b32 p, ${scale}, 0; "
        f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} {{{registers}}}, ${a}, ${b}, p, 1, 1, "
        f"{a_from_rows}, {b_from_rows}; }}"
    )
    return value_asm(text, ["f32"] * count, [("f32", count), "u64", "u64", "i32"], tied=0)


WGMMA_COLUMNS = (8, 16, 32, 64, 96, 128, 160, 192, 256)
for _n in WGMMA_COLUMNS:
    for _dtype in ("f16", "bf16"):
        for _a, _b in ((0, 1), (1, 0), (1, 1)):
            # wgmma_N_DTYPE_AB: A is 1 where it lies as [K, M], B is 1 where it lies as [K, N]
            globals()[f"wgmma_{_n}_{_dtype}_{_a}{_b}"] = _wgmma_from(_n, _dtype, _a, _b)
    # wgmma_result_N(accumulator): the sums once every product is done; nothing reads them before
    globals()[f"wgmma_result_{_n}"] = value_asm(
        "wgmma.wait_group.sync.aligned 0;", ["f32"] * (_n // 2), [("f32", _n // 2)], memory=True, tied=0
    )


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


def _copy_tensor(rank: int, multicast: bool) -> Intrinsic:
    coordinates = ",".join(f"${3 + i}" for i in range(rank))
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
        + (".multicast::cluster" if multicast else "")
        + f" [$0], [$1, {{{coordinates}}}], [$2]"
        + (f", ${3 + rank};" if multicast else ";")
    )
    return void_asm(text, ["u32", "u64", "u32", *["i32"] * rank, *(["u16"] if multicast else [])])


for _rank in (2, 3, 4, 5):
    # copy_tensor_RANKd as `copy_tensor_2d`; `_multicast` takes last the mask of cluster ranks that get the copy, each
    # at the same place and with its own barrier
    globals()[f"copy_tensor_{_rank}d"] = _copy_tensor(_rank, False)
    globals()[f"copy_tensor_{_rank}d_multicast"] = _copy_tensor(_rank, True)

barrier_arrive_cluster = void_asm("mbarrier.arrive.shared::cluster.b64 _, [$0];", ["u32"])
"""`barrier_arrive_cluster(map_shared(barrier, rank))`: arrives at the barrier of another block."""
store_matrix_x4 = void_asm(
    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [$0], {$1,$2,$3,$4};", ["u32", "u32", "u32", "u32", "u32"]
)
store_shared_f32x2 = void_asm("st.shared.v2.f32 [$0], {$1,$2};", ["u32", "f32", "f32"])
store_cluster_f32x2 = void_asm("st.shared::cluster.v2.f32 [$0], {$1,$2};", ["u32", "f32", "f32"])
"""Stores into the shared memory of a block of the cluster, at an address that `map_shared` gives."""
for _count in (24, 40):
    globals()[f"fewer_registers_{_count}"] = void_asm(f"setmaxnreg.dec.sync.aligned.u32 {_count};", [])
for _count in (104, 160, 216, 232, 240):
    globals()[f"more_registers_{_count}"] = void_asm(f"setmaxnreg.inc.sync.aligned.u32 {_count};", [])

# Clusters

cluster_rank = value_asm("mov.u32 $0, %cluster_ctarank;", ["u32"], [], effect=False)
cluster_arrive = void_asm("barrier.cluster.arrive.release.aligned;", [])
cluster_wait = void_asm("barrier.cluster.wait.acquire.aligned;", [])
map_shared = value_asm("mapa.shared::cluster.u32 $0, $1, $2;", ["u32"], ["u32", "u32"], effect=False)
"""`map_shared(address, rank)`: the same address in the shared memory of another block of the cluster."""

# Arithmetic

exp2_approx = value_asm("ex2.approx.ftz.f32 $0, $1;", ["f32"], ["f32"], effect=False)
rcp_approx = value_asm("rcp.approx.ftz.f32 $0, $1;", ["f32"], ["f32"], effect=False)
max_nan = value_asm("max.NaN.f32 $0, $1, $2;", ["f32"], ["f32", "f32"], effect=False)
min_nan = value_asm("min.NaN.f32 $0, $1, $2;", ["f32"], ["f32", "f32"], effect=False)
bits_to_f32 = value_asm("mov.b32 $0, $1;", ["f32"], ["u32"], effect=False)
f32_to_bits = value_asm("mov.b32 $0, $1;", ["u32"], ["f32"], effect=False)
larger = value_asm("max.f32 $0, $1, $2;", ["f32"], ["f32", "f32"], effect=False)
"""The larger of two numbers; of a number and a NaN, the number."""
NEGATIVE_INFINITY = np.float32("-inf")


def _philox_rounds() -> str:
    """Philox4x32-10 of the counter $4, whose upper two words are 0, with the key $5."""
    step = (
        "mul.wide.u32 p, c0, 0xD2511F53; mul.wide.u32 q, c2, 0xCD9E8D57; "
        "mov.b64 {l0,h0}, p; mov.b64 {l1,h1}, q; "
        "xor.b32 c0, h1, c1; xor.b32 c0, c0, k0; mov.b32 c1, l1; "
        "xor.b32 c2, h0, c3; xor.b32 c2, c2, k1; mov.b32 c3, l0; "
    )
    next_key = "add.u32 k0, k0, 0x9E3779B9; add.u32 k1, k1, 0xBB67AE85; "
    return (
        "{ .reg .b64 p,q; .reg .b32 c0,c1,c2,c3,k0,k1,l0,l1,h0,h1; "
        "mov.b64 {c0,c1}, $4; mov.b64 {k0,k1}, $5; mov.b32 c2, 0; mov.b32 c3, 0; "
        + next_key.join([step] * 10)
        + "mov.b32 $0, c0; mov.b32 $1, c1; mov.b32 $2, c2; mov.b32 $3, c3; }"
    )


philox = value_asm(_philox_rounds(), ["u32"] * 4, ["u64", "u64"], effect=False)
"""`philox(counter, key)`: four random words."""
philox_word = value_asm(
    "{ .reg .pred p; mov.b32 $0, $2; setp.eq.u32 p, $1, 1; @p mov.b32 $0, $3; "
    "setp.eq.u32 p, $1, 2; @p mov.b32 $0, $4; setp.eq.u32 p, $1, 3; @p mov.b32 $0, $5; }",
    ["u32"],
    ["u32", ("u32", 4)],
    effect=False,
)
"""`philox_word(number, words)`: one of four."""


def _wgmma_of_registers(n: int, dtype: str, fence: str) -> Intrinsic:
    """As `_wgmma` with A in registers and B along N in shared memory."""
    count = n // 2
    registers = ",".join(f"${i}" for i in range(count))
    a = ",".join(f"${2 * count + i}" for i in range(4))
    text = (
        f"{fence}wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} "
        f"{{{registers}}}, {{{a}}}, ${2 * count + 4}, 1, 1, 1, 1;"
    )
    return value_asm(text, ["f32"] * count, [("f32", count), *["u32"] * 4, "u64"], tied=0)


for _n in (64, 128):
    # wgmma_start_N(accumulator): before products that use it; what was to be written to it is written
    globals()[f"wgmma_start_{_n}"] = value_asm(
        "wgmma.fence.sync.aligned;", ["f32"] * (_n // 2), [("f32", _n // 2)], memory=True, tied=0
    )
    # wgmma_older_N(accumulator): the sums once every product is done but those of the last group
    globals()[f"wgmma_older_{_n}"] = value_asm(
        "wgmma.wait_group.sync.aligned 1;", ["f32"] * (_n // 2), [("f32", _n // 2)], memory=True, tied=0
    )
    # wgmma_ready_N(weights): N columns of left operands in registers; what was to be written to them is written
    globals()[f"wgmma_ready_{_n}"] = value_asm(
        "wgmma.fence.sync.aligned;", ["u32"] * (_n // 4), [("u32", _n // 4)], memory=True, tied=0
    )
    for _dtype in ("f16", "bf16"):
        # wgmma_of_registers_N_DTYPE(accumulator, a0, a1, a2, a3, descriptor_b): adds to the accumulator, and waits
        # until its registers are written; wgmma_of_ready_N_DTYPE is for those that `wgmma_start` and `wgmma_ready` gave
        globals()[f"wgmma_of_registers_{_n}_{_dtype}"] = _wgmma_of_registers(
            _n, _dtype, "wgmma.fence.sync.aligned; "
        )
        globals()[f"wgmma_of_ready_{_n}_{_dtype}"] = _wgmma_of_registers(_n, _dtype, "")


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
def shared_base(typingctx: Any, array: Any) -> Any:
    """The u32 address of a shared array: `shared_base(cuda.shared.array(0, u8))` is where dynamic memory starts."""
    if not isinstance(array, types.Array):
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        from numba.cuda.np.arrayobj import make_array

        generic = make_array(signature.args[0])(context, builder, values[0]).data
        shared = builder.addrspacecast(generic, generic.type.pointee.as_pointer(3))
        return builder.ptrtoint(shared, ir.IntType(32))

    return u32(array), codegen


ALL_LANES = 0xFFFFFFFF
