"""Instructions that differ only in numbers of their scalar code, such as layers of a net with a scale of each its own.

They share a function, which reads those numbers from memory: it is made once, and there is less code. Only operands of
sums, products and quotients are read so. Other ops have shorter code where a number is known, as a maximum that need
not look for NaN.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr

from aicf.backends.base import Launch
from aicf.backends.common.copy import moved_text
from aicf.backends.cpu.codegen.ir_builder import Number
from aicf.dialects.emit import KernelOp
from aicf.dialects.printing import text_of
from aicf.dialects.types import element_of

_NAME = re.compile(r"%[\w.$-]+")
_READERS = (arith.AddfOp, arith.SubfOp, arith.MulfOp, arith.DivfOp)
_FORMATS = {"f32": ("<f", "<I"), "f64": ("<d", "<Q")}
"""Element types of numbers that are read, with how `struct` packs them and the integers of their bits."""


def function_keys(launches: Sequence[tuple[Launch, bool]]) -> dict[int, tuple[str, tuple[Number, ...]]]:
    """By the identity of an instruction: what its function depends on, and the numbers that it reads.

    Args:
        launches: Each with whether its code follows from its body too.

    Numbers are read where instructions differ in them; elsewhere the function has them.
    """
    codes = [_Numbered.of(launch) for launch, _ in launches]
    found = [
        (_identity(*launch, code.text), code.numbers) for launch, code in zip(launches, codes, strict=True)
    ]
    several = _differing(found)
    return {
        id(launch): (key, numbers)
        if key in several
        else (_identity(launch, reads_body, _launch_text(launch)) if numbers else key, ())
        for (launch, reads_body), (key, numbers) in zip(launches, found, strict=True)
    }


def _identity(launch: Launch, reads_body: bool, code: str) -> str:
    """What the code of an instruction depends on, as text.

    Args:
        code: The text of its scalar code.
    """
    record = ", ".join(f"{key}={value}" for key, value in sorted(launch.record.items()))
    operands = [
        [(ref.shape, ref.strides, ref.dtype, str(ref.layout)) for ref in refs]
        for refs in (launch.ins, launch.outs)
    ]
    moved = moved_text(launch.body) if reads_body else ""
    return f"{launch.kernel} {launch.kind} {record} {operands} {len(launch.ws)} {code} {moved}"


@dataclass(frozen=True)
class _Numbered:
    """The scalar code of an instruction.

    Args:
        text: With an index in `numbers` for each of them.
        numbers: What is read, in order of first use.
    """

    text: str
    numbers: tuple[Number, ...]

    @staticmethod
    def of(launch: Launch) -> _Numbered:
        """Of the code of an instruction, if it has some."""
        codes = [code for code in (launch.prologue, launch.code) if code is not None]
        slots = {number: slot for slot, number in enumerate(_read_numbers(codes))}
        return _Numbered("; ".join(_text(code, slots) for code in codes), tuple(slots))


def _launch_text(launch: Launch) -> str:
    """The scalar code of an instruction with its numbers."""
    return "; ".join(_text(code, {}) for code in (launch.prologue, launch.code) if code is not None)


def _differing(keys: Iterable[tuple[str, tuple[Number, ...]]]) -> set[str]:
    """Of what instructions are but for their numbers, what there is with several sets of them."""
    return {key for key, count in Counter(key for key, _ in set(keys)).items() if count > 1}


def bits_of(number: Number) -> int:
    """The bits of a number, as programs keep it for their functions."""
    value, bits = _FORMATS[number.dtype]
    return struct.unpack(bits, struct.pack(value, number.value))[0]


def _numbers_of(code: KernelOp) -> list[tuple[arith.ConstantOp, Number]]:
    """The constants of floats, in text order."""
    return [
        (op, Number.of(dtype, op.value.value.data))
        for op in code.walk()
        if type(op) is arith.ConstantOp
        and isinstance(op.value, FloatAttr)
        and (dtype := element_of(op.result.type).name) in _FORMATS
    ]


def _read_numbers(codes: Iterable[KernelOp]) -> list[Number]:
    """What may be read everywhere, each once."""
    found = [pair for code in codes for pair in _numbers_of(code)]
    known = {
        number
        for op, number in found
        if not all(isinstance(use.operation, _READERS) for use in op.result.uses)
    }
    return list(dict.fromkeys(number for _, number in found if number not in known))


def _text(code: KernelOp, slots: dict[Number, int]) -> str:
    """The text of code with indices in place of numbers, and which constants those are."""
    marked = [index for index, (_, number) in enumerate(_numbers_of(code)) if number in slots]
    if marked:
        code = code.clone()
        constants = _numbers_of(code)
        for op, number in (constants[index] for index in marked):
            assert isinstance(op.value, FloatAttr)
            op.value = FloatAttr(float(slots[number]), op.value.type)
    return f"{_unnamed(text_of(code).split(' parallel ', 1)[1])} {marked}"


def _unnamed(text: str) -> str:
    """Text whose values are called by the order in which they come: models name each layer's otherwise."""
    names: dict[str, str] = {}
    return _NAME.sub(lambda found: names.setdefault(found[0], f"%{len(names)}"), text)
