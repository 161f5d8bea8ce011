# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Loads, stores and asynchronous copies, of global and of shared memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from aicf.backends.cuda.compiler.ptx.intrinsics import (
    Intrinsic,
    i32,
    literals_of,
    u32,
    u64,
    value_asm,
    void_asm,
)

# Global memory

load_f32x4 = value_asm("ld.global.v4.f32 {$0,$1,$2,$3}, [$4];", ["f32"] * 4, ["u64"])
load_u32x4 = value_asm("ld.global.v4.u32 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u64"])
load_i32x4 = value_asm("ld.global.v4.s32 {$0,$1,$2,$3}, [$4];", ["i32"] * 4, ["u64"])
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
stream_u32x2 = value_asm(
    "ld.relaxed.gpu.global.L1::no_allocate.v2.u32 {$0,$1}, [$2];", ["u32"] * 2, ["u64"], memory=True
)
stream_u32 = value_asm("ld.relaxed.gpu.global.L1::no_allocate.u32 $0, [$1];", ["u32"], ["u64"], memory=True)
"""The same of fewer bytes."""
prefetch_l2 = void_asm("cp.async.bulk.prefetch.L2.global [$0], $1;", ["u64", "u32"])
"""Brings bytes into the second cache: the address and the number of them are multiples of 16. From Hopper on."""
poll_u64 = value_asm("ld.relaxed.gpu.global.u64 $0, [$1];", ["u64"], ["u64"], memory=True)
"""A word that another block of the same launch may be writing."""
publish_u64 = void_asm("st.relaxed.gpu.global.u64 [$0], $1;", ["u64", "u64"])
"""A word that other blocks of the same launch poll."""
store_u32x4 = void_asm("st.global.v4.u32 [$0], {$1,$2,$3,$4};", ["u64", "u32", "u32", "u32", "u32"])
store_u32x2 = void_asm("st.global.v2.u32 [$0], {$1,$2};", ["u64", "u32", "u32"])
store_f32x4 = void_asm("st.global.v4.f32 [$0], {$1,$2,$3,$4};", ["u64", "f32", "f32", "f32", "f32"])
store_i32x4 = void_asm("st.global.v4.s32 [$0], {$1,$2,$3,$4};", ["u64", "i32", "i32", "i32", "i32"])
store_u32 = void_asm("st.global.u32 [$0], $1;", ["u64", "u32"])
store_u16 = void_asm("st.global.u16 [$0], $1;", ["u64", "u16"])
store_u8 = void_asm("st.global.u8 [$0], $1;", ["u64", "u32"])
store_u64 = void_asm("st.global.u64 [$0], $1;", ["u64", "u64"])
store_f32 = void_asm("st.global.f32 [$0], $1;", ["u64", "f32"])
store_f64 = void_asm("st.global.f64 [$0], $1;", ["u64", "f64"])
store_i32 = void_asm("st.global.s32 [$0], $1;", ["u64", "i32"])
store_i64 = void_asm("st.global.s64 [$0], $1;", ["u64", "i64"])
take_ticket = value_asm("atom.relaxed.gpu.global.inc.u32 $0, [$1], $2;", ["u32"], ["u64", "u32"], memory=True)
atomic_max_i32 = void_asm("red.global.max.s32 [$0], $1;", ["u64", "i32"])
load_f32x2 = value_asm("ld.global.v2.f32 {$0,$1}, [$2];", ["f32"] * 2, ["u64"])
load_f64x2 = value_asm("ld.global.v2.f64 {$0,$1}, [$2];", ["f64"] * 2, ["u64"])
load_i64x2 = value_asm("ld.global.v2.s64 {$0,$1}, [$2];", ["i64"] * 2, ["u64"])
store_i32x2 = void_asm("st.global.v2.s32 [$0], {$1,$2};", ["u64", "i32", "i32"])
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

load_u32x2_or_zero = value_asm(
    "{ .reg .pred p; .reg .b32 a,b; mov.b32 a,0; mov.b32 b,0; setp.ne.b32 p,$3,0; "
    "@p ld.global.v2.u32 {a,b}, [$2]; mov.b32 $0,a; mov.b32 $1,b; }",
    ["u32"] * 2,
    ["u64", "i32"],
)
load_u8_or_zero = value_asm(
    "{ .reg .pred p; setp.ne.b32 p,$2,0; mov.b32 $0,0; @p ld.global.u8 $0, [$1]; }", ["u32"], ["u64", "i32"]
)
load_u16_or_zero = value_asm(
    "{ .reg .pred p; setp.ne.b32 p,$2,0; mov.b16 $0,0; @p ld.global.u16 $0, [$1]; }", ["u16"], ["u64", "i32"]
)
load_u32_or_zero = value_asm(
    "{ .reg .pred p; setp.ne.b32 p,$2,0; mov.b32 $0,0; @p ld.global.u32 $0, [$1]; }", ["u32"], ["u64", "i32"]
)
load_f64_or_zero = value_asm(
    "{ .reg .pred p; setp.ne.b32 p,$2,0; mov.b64 $0,0; @p ld.global.f64 $0, [$1]; }", ["f64"], ["u64", "i32"]
)
"""An element, or two of 16 bits, loaded where the second argument is not 0, else 0."""

# Shared memory

load_shared_f32 = value_asm("ld.shared.f32 $0, [$1];", ["f32"], ["u32"], memory=True)
load_shared_f32x4 = value_asm("ld.shared.v4.f32 {$0,$1,$2,$3}, [$4];", ["f32"] * 4, ["u32"], memory=True)
load_shared_i32x4 = value_asm("ld.shared.v4.s32 {$0,$1,$2,$3}, [$4];", ["i32"] * 4, ["u32"], memory=True)
load_shared_u32x4 = value_asm("ld.shared.v4.u32 {$0,$1,$2,$3}, [$4];", ["u32"] * 4, ["u32"], memory=True)
load_shared_f32x2 = value_asm("ld.shared.v2.f32 {$0,$1}, [$2];", ["f32"] * 2, ["u32"], memory=True)
store_shared_f32 = void_asm("st.shared.f32 [$0], $1;", ["u32", "f32"])
store_shared_f32x4 = void_asm("st.shared.v4.f32 [$0], {$1,$2,$3,$4};", ["u32", "f32", "f32", "f32", "f32"])
store_shared_u32x4 = void_asm("st.shared.v4.u32 [$0], {$1,$2,$3,$4};", ["u32", "u32", "u32", "u32", "u32"])
store_shared_u16 = void_asm("st.shared.u16 [$0], $1;", ["u32", "u16"])
store_shared_u32 = void_asm("st.shared.u32 [$0], $1;", ["u32", "u32"])
store_shared_f32x2 = void_asm("st.shared.v2.f32 [$0], {$1,$2};", ["u32", "f32", "f32"])
store_cluster_f32x2 = void_asm("st.shared::cluster.v2.f32 [$0], {$1,$2};", ["u32", "f32", "f32"])
store_cluster_i32x2 = void_asm("st.shared::cluster.v2.s32 [$0], {$1,$2};", ["u32", "i32", "i32"])
"""Stores into the shared memory of a block of the cluster, at an address that `map_shared` gives."""

# Asynchronous copies from global to shared memory

copy_async16 = void_asm("cp.async.cg.shared.global [$0], [$1], 16;", ["u32", "u64"])
copy_async16_or_zero = void_asm("cp.async.cg.shared.global [$0], [$1], 16, $2;", ["u32", "u64", "u32"])
"""Copies the first `size` (0 or 16) bytes and fills the rest of the 16 with zeros."""
commit_copies = void_asm("cp.async.commit_group;", [])
wait_copies_0 = void_asm("cp.async.wait_group 0;", [])
wait_copies_1 = void_asm("cp.async.wait_group 1;", [])
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


def _cached(width: int) -> str:
    """Copies of 16 bytes may pass by L1, smaller ones may not."""
    return "cg" if width == 16 else "ca"


@intrinsic
def copy_rows(
    typingctx: Any, width: Any, target: Any, source: Any, count: Any, target_step: Any, source_step: Any
) -> Any:
    """`count` copies of `width` (4, 8, 16) bytes, at addresses in shared and in global memory as many apart."""
    if (literals := literals_of(count, target_step, source_step, width)) is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, long = ir.IntType(32), ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word, long])
        text = f"cp.async.{_cached(literals[3])}.shared.global.L2::128B [$0], [$1], {literals[3]};"
        copy = ir.InlineAsm(function, text, "r,l,~{memory}", side_effect=True)
        for i in range(literals[0]):
            address = builder.add(values[1], ir.Constant(word, i * literals[1]))
            builder.call(copy, [address, builder.add(values[2], ir.Constant(long, i * literals[2]))])
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
    if (literals := literals_of(count, target_step, source_step, row_step, width)) is None:
        return None

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word, long = ir.IntType(32), ir.IntType(64)
        function = ir.FunctionType(ir.VoidType(), [word, long, word])
        text = f"cp.async.{_cached(literals[4])}.shared.global.L2::128B [$0], [$1], {literals[4]}, $2;"
        copy = ir.InlineAsm(function, text, "r,l,r,~{memory}", side_effect=True)
        for i in range(literals[0]):
            inside = builder.icmp_signed("<", ir.Constant(word, i * literals[3]), values[3])
            given = builder.select(inside, values[4], ir.Constant(word, 0))
            address = builder.add(values[1], ir.Constant(word, i * literals[1]))
            builder.call(copy, [address, builder.add(values[2], ir.Constant(long, i * literals[2])), given])
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
        if (literals := literals_of(count, target_step, source_step, row_step)) is None:
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
                address = builder.add(values[1], ir.Constant(long, i * literals[2]))
                loaded.append(builder.call(load, [address, given]))
            for i, value in enumerate(loaded):
                builder.call(store, [builder.add(values[0], ir.Constant(word, i * literals[1])), value])
            return context.get_dummy_value()

        return types.void(u32, u64, i32, i32, count, target_step, source_step, row_step), codegen

    return widen_rows


widen_rows_i16, widen_rows_i8, widen_rows_u8 = map(_widen_rows, ("s16", "s8", "u8"))
