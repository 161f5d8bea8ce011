"""Which epilogue of a library a scalar program is, if it is one: read from the program, constants included.

Libraries compute ``activation(product + terms)`` in f32 and round once; which terms and activations there are each
says for itself. Anything else is for our own kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects.emit_kernels import CastOp, KernelOp, StoreOp

Expr: TypeAlias = "tuple[str | int | Expr, ...]"
"""`("in", i)` for operand i, `("const", digits)`, or an op's name and its operands, sorted where they commute."""

_MOST_OPS = 24
"""An epilogue of the library has fewer."""

_COMMUTE = frozenset({"arith.addf", "arith.mulf", "arith.maximumf"})


@dataclass(frozen=True)
class Epilogue:
    """What is applied to the product.

    Args:
        terms: Operands of the scalar program that are added to the accumulator, operand 0.
        activation: One of those asked for, applied to the sum.
    """

    terms: tuple[int, ...]
    activation: str


def library_epilogue(code: KernelOp, activations: Sequence[str]) -> Epilogue | None:
    """The epilogue that a program of one phase is; None if a library has none like it, which has these activations."""
    ops = list(code.phases[-1].body.block.ops)
    stores = [op for op in ops if isinstance(op, StoreOp)]
    if len(stores) != 1 or len(ops) > _MOST_OPS:
        return None
    result = _expr(stores[0].operands[0], code)
    for inner in _parts(result):
        terms = _sum(inner)
        if terms is None or terms.count(0) != 1 or len(set(terms)) != len(terms):
            continue
        for activation in activations:
            if result == _APPLIED[activation](inner):
                return Epilogue(tuple(sorted(set(terms) - {0})), activation)
    return None


def _expr(value: SSAValue, code: KernelOp) -> Expr:
    if isinstance(value, BlockArgument):
        is_operand = value.block is code.body.block
        return ("in", value.index) if is_operand else ("phase", value.index)
    assert isinstance(value, OpResult)
    op = value.op
    # Between float types they only round, which happens once in the end.
    if isinstance(op, CastOp | arith.ExtFOp | arith.TruncFOp):
        return _expr(op.operands[0], code)
    if (number := _constant(op)) is not None:
        return _const(number)
    return _op(op.name, *(_expr(operand, code) for operand in op.operands))


def _constant(op: Operation) -> float | None:
    if not isinstance(op, arith.ConstantOp) or not isinstance(op.value, FloatAttr):
        return None
    return float(op.value.value.data)


def _op(name: str, *operands: Expr) -> Expr:
    return (name, *(sorted(operands, key=repr) if name in _COMMUTE else operands))


def _const(number: float) -> Expr:
    return ("const", f"{number:.6g}")


def _relu(x: Expr) -> Expr:
    return _op("arith.maximumf", x, _const(0.0))


def _gelu(x: Expr) -> Expr:
    return _half_times(x, _op("math.erf", _op("arith.mulf", x, _const(0.7071067812))))


def _gelu_tanh(x: Expr) -> Expr:
    cube = _op("arith.mulf", _op("arith.mulf", x, x), x)
    inner = _op("arith.addf", x, _op("arith.mulf", cube, _const(0.044715)))
    return _half_times(x, _op("math.tanh", _op("arith.mulf", inner, _const(0.7978845608))))


def _half_times(x: Expr, curve: Expr) -> Expr:
    """x / 2 * (1 + curve)."""
    return _op("arith.mulf", _op("arith.mulf", x, _const(0.5)), _op("arith.addf", curve, _const(1.0)))


def _silu(x: Expr) -> Expr:
    return _op("arith.mulf", x, _op("emit.sigmoid", x))


_APPLIED: Mapping[str, Callable[[Expr], Expr]] = {
    "none": lambda x: x,
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "sigmoid": lambda x: _op("emit.sigmoid", x),
    "tanh": lambda x: _op("math.tanh", x),
}
"""Activations of `x`, as `lower-logical` writes them."""


def _sum(expr: Expr) -> list[int] | None:
    """The operands that `expr` adds up, in any association; None if it is no such sum."""
    match expr:
        case ("in", int(index)):
            return [index]
        case ("arith.addf", tuple(left), tuple(right)):
            first, second = _sum(left), _sum(right)
            return None if first is None or second is None else first + second
        case _:
            return None


def _parts(expr: Expr) -> Iterator[Expr]:
    """The expression and everything in it."""
    yield expr
    for part in expr[1:]:
        if isinstance(part, tuple):
            yield from _parts(part)
