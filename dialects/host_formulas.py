"""What the executable computes of meta scalars by itself, as data: a formula by name, its operands and its numbers.

    {formula = "learning_rate", of = ["now"], schedule = "cosine", base = 1.0e-3, ...}   set before each run
    {next = "now"}                                                                        kept for the next run

Formulas are called like the logical ops that they stand for, with the same attributes. Operands are names of other
metas, or numbers. The runtime has a function for each, in `aicf/runtime/on_host/formulas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    StringAttr,
    i64,
)
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

FORMULA, OF, NEXT = "formula", "of", "next"


@dataclass(frozen=True)
class Signature:
    """What a formula takes: how many operands, and which attributes."""

    operands: int
    numbers: tuple[str, ...] = ()


SIGNATURES: Mapping[str, Signature] = {
    "add": Signature(2),
    "sub": Signature(2),
    "mul": Signature(2),
    "mod": Signature(2),
    "and": Signature(2),
    "step_inc": Signature(1),
    "bias_corr": Signature(1, ("beta",)),
    "learning_rate": Signature(1, ("schedule", "base", "warmup", "total", "final")),
    "step_rate": Signature(1, ("base", "factor", "warmup", "period", "milestones")),
    "one_cycle_rate": Signature(1, ("anneal", "base", "peak", "final", "rise", "total")),
}
"""The formulas by name."""


def formula(name: str, of: Sequence[Attribute], numbers: Mapping[str, Attribute]) -> DictionaryAttr:
    """The description of a computed meta; operands are strings, or integers and floats."""
    ordered = {key: _listed(numbers[key]) for key in SIGNATURES[name].numbers}
    return DictionaryAttr({FORMULA: StringAttr(name), OF: ArrayAttr(of), **ordered})


def _listed(number: Attribute) -> Attribute:
    """A list of integers as an array of them, as a plan has it."""
    if not isa(number, DenseArrayBase[I64]):
        return number
    return ArrayAttr([IntegerAttr(entry, i64) for entry in number.get_values()])


def kept(next_: str) -> DictionaryAttr:
    """The description of a meta whose value for the next run is that of another one in this run."""
    return DictionaryAttr({NEXT: StringAttr(next_)})


def is_computed(host: DictionaryAttr | None) -> bool:
    """Whether a meta is set before each run, and so has no value of its own."""
    return host is not None and FORMULA in host.data


def metas_read(host: DictionaryAttr) -> list[str]:
    """The names of the metas that a description mentions."""
    mentioned = [host.data[NEXT]] if NEXT in host.data else _operands(host)
    return [attr.data for attr in mentioned if isinstance(attr, StringAttr)]


def _operands(host: DictionaryAttr) -> Sequence[Attribute]:
    of = host.data.get(OF)
    return of.data if isa(of, ArrayAttr[Attribute]) else ()


def check_host(host: DictionaryAttr) -> None:
    """Raises VerifyException if `host` is no description that the runtime knows."""
    if NEXT in host.data:
        if len(host.data) > 1 or not isinstance(host.data[NEXT], StringAttr):
            raise VerifyException(
                f'host: a meta that is kept has {NEXT} = "NAME" and no more, got {_keys(host)}'
            )
        return
    name = host.data.get(FORMULA)
    if not isinstance(name, StringAttr) or name.data not in SIGNATURES:
        raise VerifyException(f"host: {FORMULA} is {name}; it is one of {', '.join(SIGNATURES)}")
    signature = SIGNATURES[name.data]
    if sorted(host.data) != sorted((FORMULA, OF, *signature.numbers)):
        wanted = ", ".join((FORMULA, OF, *signature.numbers))
        raise VerifyException(f"host: {name.data} has the entries {wanted}, got {_keys(host)}")
    of = _operands(host)
    if len(of) != signature.operands:
        raise VerifyException(f"host: {name.data} is {OF} {signature.operands} operands, got {host.data[OF]}")
    if not all(isinstance(operand, StringAttr | IntegerAttr | FloatAttr) for operand in of):
        raise VerifyException(f"host: operands are names of metas and numbers, got {host.data[OF]}")


def _keys(host: DictionaryAttr) -> str:
    return ", ".join(host.data) or "nothing"
