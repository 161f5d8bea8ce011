"""Constraints of instructions: what is written by hand about memory, order and kernels, and no pass may undo.

One table says which there are, what each looks like and what is wrong with one. Who enforces which: `may_alias` says
what the kernel permits (`decide-inplace`), `align` binds `decide-inplace` and `plan-memory`, `no_reorder` and
`same_stream` bind `schedule`, `max_workspace` binds `select-kernels`; `verify-emit` and `verify-order` check them in
every program, since it may have been edited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from xdsl.dialects.builtin import StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.dialects.emit_types import i64_pairs, i64_value
from aicf.errors import did_you_mean

MAX_ALIGN = 256
"""Bytes: what every backend aligns an arena to, so that a multiple of it in the arena is one in memory."""

Constraints: TypeAlias = Mapping[str, Attribute]


# What passes read


def alignments(constraints: Constraints) -> dict[int, int]:
    """Bytes that the addresses of operands must be multiples of, by operand; ins are counted before outs."""
    found: dict[int, int] = {}
    for operand, align in i64_pairs(constraints.get("align")) or ():
        found[operand] = max(align, found.get(operand, 1))
    return found


def keeps_its_place(constraints: Constraints) -> bool:
    """Whether all that comes before the instruction in the text ends before it, and all after it starts after it."""
    return "no_reorder" in constraints


def stream_group(constraints: Constraints) -> str | None:
    """The name that instructions of one stream share; None for an instruction of no group."""
    name = constraints.get("same_stream")
    return name.data if isinstance(name, StringAttr) else None


def most_workspace(constraints: Constraints) -> int | None:
    """Most bytes of workspace that the kernel may take; None for any number."""
    size = constraints.get("max_workspace")
    return None if size is None else i64_value(size)


# What may be written


def constraints_problem(constraints: Constraints, ins: int, outs: int) -> str | None:
    """What is wrong with the constraints of an instruction of so many operands and results; None if nothing is."""
    for key, value in constraints.items():
        if (problem := _RULES.get(key)) is None:
            hint = did_you_mean(key, _RULES) or f"there are {', '.join(_RULES)}"
            return f"unknown constraint '{key}'; {hint}"
        if (why := problem(value, ins, outs)) is not None:
            return why
    return None


def _may_alias_problem(value: Attribute, ins: int, outs: int) -> str | None:
    pairs = i64_pairs(value)
    if pairs is None:
        return "may_alias is an array of [out, in] pairs of i64"
    for out, operand in pairs:
        if out >= outs or operand >= ins:
            return f"may_alias names out {out} and in {operand}; it has {outs} outs, {ins} ins"
    return None


def _align_problem(value: Attribute, ins: int, outs: int) -> str | None:
    pairs = i64_pairs(value)
    if pairs is None:
        return "align is an array of [operand, bytes] pairs of i64, ins counted before outs"
    for operand, align in pairs:
        if operand >= ins + outs:
            return f"align names operand {operand}; it has {ins} ins and {outs} outs, counted together"
        if not 1 <= align <= MAX_ALIGN or align & (align - 1):
            return f"align of operand {operand} is a power of two up to {MAX_ALIGN}, got {align}"
    return None


def _no_reorder_problem(value: Attribute, ins: int, outs: int) -> str | None:
    return None if isinstance(value, UnitAttr) else f"no_reorder has no value, got {value}; write no_reorder"


def _same_stream_problem(value: Attribute, ins: int, outs: int) -> str | None:
    is_name = isinstance(value, StringAttr) and value.data
    return None if is_name else f"same_stream is the name of a group of instructions, got {value}"


def _max_workspace_problem(value: Attribute, ins: int, outs: int) -> str | None:
    number = i64_value(value)
    is_size = number is not None and number >= 0
    return None if is_size else f"max_workspace is bytes as an i64, 0 or more, got {value}"


_RULES: dict[str, Callable[[Attribute, int, int], str | None]] = {
    "may_alias": _may_alias_problem,
    "align": _align_problem,
    "no_reorder": _no_reorder_problem,
    "same_stream": _same_stream_problem,
    "max_workspace": _max_workspace_problem,
}
