"""Updates of many tensors by one instruction: how the generated program of such a body says which operands go together.

A *part* is one tensor of parameters with its gradient and its states. Parts with the same arithmetic share a
*program*, so an update of a hundred tensors has a code of a few ops. The `emit.kernel` of an update has

* a parallel dim for each program: the elements of all its parts, one part after the other (one that counts elements by
  `emit.index` has one part);
* the operands of rank 0, which all programs may read, then the operands of each program, as its first part has them;
* the results of rank 0, then those of each program;
* where numbers are computed for all parts (a learning rate, corrections, the counter), a first phase that does so and
  stores the results of rank 0, then a phase for each program;
* the attribute `emit.parts`: for each part, in the order of the body, what is listed in `Part`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, i64
from xdsl.ir import Attribute

from aicf.dialects.emit_kernels import KernelOp, PhaseOp

PARTS_ATTR = "emit.parts"


@dataclass(frozen=True)
class Part:
    """One part of an update.

    Args:
        program: Its program, from 0.
        elements: Of each of its operands and results.
        operands, results: Those of the instruction that are its own, in the order of its program's.
    """

    program: int
    elements: int
    operands: tuple[int, ...]
    results: tuple[int, ...]

    def to_attr(self) -> DictionaryAttr:
        """As the attribute lists it."""
        return DictionaryAttr(
            {
                "program": IntegerAttr(self.program, i64),
                "elements": IntegerAttr(self.elements, i64),
                "ins": _integers(self.operands),
                "outs": _integers(self.results),
            }
        )

    @classmethod
    def of_attr(cls, attr: Attribute) -> Part:
        """What `to_attr` gives. Raises ValueError for anything else."""
        match attr:
            case DictionaryAttr(
                data={
                    "program": IntegerAttr() as program,
                    "elements": IntegerAttr() as elements,
                    "ins": ArrayAttr() as operands,
                    "outs": ArrayAttr() as results,
                }
            ):
                return cls(program.value.data, elements.value.data, _numbers(operands), _numbers(results))
            case _:
                raise ValueError(
                    f"{PARTS_ATTR} lists dictionaries of program, elements, ins and outs, not {attr}"
                )


def _integers(values: Sequence[int]) -> ArrayAttr[IntegerAttr]:
    return ArrayAttr([IntegerAttr(value, i64) for value in values])


def _numbers(array: ArrayAttr[Attribute]) -> tuple[int, ...]:
    return tuple(entry.value.data for entry in array if isinstance(entry, IntegerAttr))


@dataclass(frozen=True)
class Update:
    """What the code of an update says besides its arithmetic.

    Args:
        scalars: Operands of the instruction that have rank 0, in the order of the code.
        scalar_results: Results of the instruction that have rank 0.
        parts: In the order of the body.
    """

    scalars: tuple[int, ...]
    scalar_results: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def programs(self) -> int:
        """How many programs the parts have."""
        return 1 + max(part.program for part in self.parts)

    def first_part(self, program: int) -> Part:
        """The part by which the code counts the operands and results of a program."""
        return next(part for part in self.parts if part.program == program)

    def arguments(self, program: int) -> range:
        """The operands of the code that are the elements of a program."""
        start = len(self.scalars) + sum(len(self.first_part(k).operands) for k in range(program))
        return range(start, start + len(self.first_part(program).operands))

    def outputs(self, program: int) -> range:
        """The outputs of the code that are those of a program."""
        start = len(self.scalar_results) + sum(len(self.first_part(k).results) for k in range(program))
        return range(start, start + len(self.first_part(program).results))


def is_update(code: KernelOp | None) -> bool:
    """Whether a generated program updates parts."""
    return code is not None and PARTS_ATTR in code.attributes


def update_of(code: KernelOp, operands: int, results: int) -> Update:
    """The parts of an update's code, for an instruction with so many operands and results.

    Raises ValueError if the code has no parts, or they are not those of such an instruction.
    """
    listed = code.attributes.get(PARTS_ATTR)
    entries = cast("ArrayAttr[Attribute]", listed).data if isinstance(listed, ArrayAttr) else ()
    parts = tuple(map(Part.of_attr, entries))
    if not parts:
        raise ValueError(f"the code of an update lists its parts in {PARTS_ATTR}")
    taken = {number for part in parts for number in part.operands}
    made = {number for part in parts for number in part.results}
    update = Update(
        tuple(number for number in range(operands) if number not in taken),
        tuple(number for number in range(results) if number not in made),
        parts,
    )
    last = update.programs - 1
    counts = (update.arguments(last).stop, update.outputs(last).stop, last + 1)
    if counts != (len(code.ins), len(code.outs), len(code.parallel)) or len(program_phases(code)) != last + 1:
        raise ValueError(f"{PARTS_ATTR} does not fit the operands, results and phases of the code")
    return update


def scalar_phase(code: KernelOp) -> PhaseOp | None:
    """The phase that computes numbers for all parts, None if there are none to compute."""
    return code.phases[0] if len(code.phases) > len(code.parallel) else None


def program_phases(code: KernelOp) -> tuple[PhaseOp, ...]:
    """The phase of each program."""
    return code.phases[len(code.phases) - len(code.parallel) :]
