# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""How an instruction becomes a Numba intrinsic, and the types that intrinsics are written with. No instruction itself.

An intrinsic is made by `void_asm` or `value_asm` from PTX text with operands $0, $1, ...: results first. Those that
take tuples or literal numbers are written out with `intrinsic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

f32, f64 = types.float32, types.float64
i32, i64, u32, u64 = types.int32, types.int64, types.uint32, types.uint64
i16, u16, i8, u8 = types.int16, types.uint16, types.int8, types.uint8

NUMBA = {"f32": f32, "f64": f64, "u32": u32, "i32": i32, "i64": i64, "u64": u64, "u16": u16}
LLVM = {
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
    "u32": ir.IntType(32),
    "i32": ir.IntType(32),
    "i64": ir.IntType(64),
    "u64": ir.IntType(64),
    "u16": ir.IntType(16),
}
CONSTRAINT = {"f32": "f", "f64": "d", "u32": "r", "i32": "r", "i64": "l", "u64": "l", "u16": "h"}
PTX_BYTES: Mapping[str, Mapping[str, str]] = {
    "i32": {"i8": "s8", "u8": "u8"},
    "f32": {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2"},
}
"""Types of 8 bits as instructions of tensor cores call them, by the type of their sums."""

Intrinsic = Callable[..., Any]


def with_arity(count: int, typer: Callable[..., Any]) -> Intrinsic:
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
    numba = [NUMBA[name] for name in arguments]

    def typer(typingctx: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            constraints = [CONSTRAINT[name] for name in arguments] + (["~{memory}"] if memory else [])
            function = ir.FunctionType(ir.VoidType(), [LLVM[name] for name in arguments])
            builder.call(ir.InlineAsm(function, text, ",".join(constraints), side_effect=True), values)
            return context.get_dummy_value()

        return types.void(*numba), codegen

    return with_arity(len(arguments), typer)


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
    numba = [types.UniTuple(NUMBA[a[0]], a[1]) if isinstance(a, tuple) else NUMBA[a] for a in arguments]
    result = NUMBA[results[0]] if len(results) == 1 else types.UniTuple(NUMBA[results[0]], len(results))

    def typer(typingctx: Any, *given: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            flat: list[Any] = []
            kinds: list[Any] = []
            constraints = ["=" + CONSTRAINT[name] for name in results]
            for index, (argument, value) in enumerate(zip(arguments, values, strict=True)):
                if isinstance(argument, tuple):
                    for i in range(argument[1]):
                        flat.append(builder.extract_value(value, i))
                        kinds.append(LLVM[argument[0]])
                        constraints.append(str(i) if index == tied else CONSTRAINT[argument[0]])
                else:
                    flat.append(value)
                    kinds.append(LLVM[argument])
                    constraints.append(CONSTRAINT[argument])
            constraints += ["~{memory}"] if memory else []
            out = [LLVM[name] for name in results]
            function = ir.FunctionType(out[0] if len(out) == 1 else ir.LiteralStructType(out), kinds)
            made = builder.call(ir.InlineAsm(function, text, ",".join(constraints), side_effect=effect), flat)
            if len(out) == 1:
                return made
            return cgutils.pack_array(builder, [builder.extract_value(made, i) for i in range(len(out))])

        return result(*numba), codegen

    return with_arity(len(arguments), typer)


def literals_of(*given: Any) -> list[int] | None:
    """The values of arguments that are literal integers, None if one is not."""
    if not all(isinstance(one, types.IntegerLiteral) for one in given):
        return None
    return [one.literal_value for one in given]
