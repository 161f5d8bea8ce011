"""Symbolic sizes of a traced graph: sympy expressions over its symbols, which become numbers for one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from aicf.errors import PolicyError, UnsupportedOp


def expression_of(size: Any) -> Any | None:
    """The sympy expression of a symbolic number; None for a concrete one."""
    node = getattr(size, "node", None)
    return None if node is None or not hasattr(node, "expr") else node.expr


def symbols_of(size: Any) -> set[str]:
    """The names of the symbols in a size."""
    expression = expression_of(size)
    return set() if expression is None else {symbol.name for symbol in expression.free_symbols}


def number_of(size: Any, bindings: Mapping[str, int]) -> Any:
    """The value of a size, or of another symbolic number, once its symbols have values.

    Raises:
        PolicyError: a symbol has none.
        UnsupportedOp: it is data-dependent.
    """
    expression = expression_of(size)
    return size if expression is None else value_of(expression, bindings)


def value_of(expression: Any, bindings: Mapping[str, int]) -> int | float | bool:
    """The value of a sympy expression of sizes; arguments and errors as in `number_of`."""
    free = {symbol: bindings.get(symbol.name) for symbol in expression.free_symbols}
    for symbol, value in free.items():
        if value is not None:
            continue
        if symbol.name.startswith(("u", "zuf")):
            raise UnsupportedOp(
                f"a size follows from elements of a tensor ({symbol.name}); give the model inputs that it does not "
                "depend on, or compute that part outside"
            )
        raise PolicyError(f"dims: the size {symbol.name} has no value; give dims='{symbol.name}=...'")
    # By name, not by an import: sympy comes with PyTorch, and type checkers run where neither is installed.
    sympy: Any = import_module("sympy")
    return _python(expression.xreplace({symbol: sympy.Integer(value) for symbol, value in free.items()}))


def shape_of(sizes: Sequence[Any], bindings: Mapping[str, int]) -> tuple[int, ...]:
    """The sizes of a tensor, as numbers."""
    return tuple(int(number_of(size, bindings)) for size in sizes)


def _python(value: Any) -> int | float | bool:
    if getattr(value, "is_Boolean", False):
        return bool(value)
    return int(value) if value.is_integer else float(value)
