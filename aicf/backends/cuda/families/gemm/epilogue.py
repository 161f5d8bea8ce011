"""The text that ends a GEMM tile: four neighbouring sums of a row become elements of the results.

Two snippets. `fetch(row, column, batch)` loads what the epilogue reads beside the sums, as u32 words that
a kernel may hold in registers while it multiplies; `finish(row, column, batch, held, sums)` computes and stores. Both
are told the pointers as the registers `pointers`. The scalar program itself comes from `codegen/scalar.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aicf.backends.cuda.codegen.scalar import float8_packed, float8_unpacked, wrapped_text
from aicf.backends.cuda.compiler.specializer import Constant, Snippet
from aicf.backends.cuda.families.gemm.problem import Access, GemmProblem
from aicf.backends.cuda.target import ELEMENT_BYTES, FLOAT8, SHORT_INTEGERS

VECTOR = 4
"""Neighbouring columns of one step."""

_WORDS = {"f32": 4, "f16": 2, "bf16": 2, "f8E4M3FN": 1, "f8E5M2": 1}
"""Registers of four elements, for types that are held as words."""
_INTEGER_WORDS = {"i32": 4, "i8": 1, "u8": 1}
"""The same, beside them after sums of i32."""
_LOADS = {4: "load_u32", 2: "load_u16", 1: "load_u8"}
"""Of a word, by its bytes."""


@dataclass(frozen=True)
class Epilogue:
    """The constants of a template that ends with it.

    Args:
        held: Words that `fetch` gives.
        constants: FETCH and FINISH, see the module; HELD; and the names that the snippets use.
    """

    held: int
    constants: Mapping[str, Constant | Snippet]


@dataclass(frozen=True)
class Guards:
    """Whether a tile may reach past the last row, past the last column."""

    rows: bool
    columns: bool


@dataclass(frozen=True)
class EpilogueCode:
    """What follows the sums of one product.

    Args:
        point: The scalar program at one point, as `point_snippet` gives it with every operand an accumulator; the
            addresses of its outputs are not used. None stores the sums as they are.
        extras, outputs: Its operands, over the dims of the product, in the order of the pointers.
        scalars: `LOAD_<dtype>` and `STORE_<dtype>`, snippets of (address) and (address, value).
    """

    point: Snippet | None
    extras: Sequence[Access]
    outputs: Sequence[Access]
    scalars: Mapping[str, Snippet]

    @property
    def pointers(self) -> int:
        """Operands in memory."""
        return len(self.extras) + len(self.outputs)

    def epilogue(self, problem: GemmProblem, first_pointer: int, guards: Guards) -> Epilogue:
        """The snippets that end a tile of `problem`.

        Args:
            first_pointer: Index of the first extra among `pointers`; the others follow, then the outputs.
            guards: What has to be checked.
        """
        return _Writer(self, problem, first_pointer, guards).epilogue()


class _Writer:
    def __init__(self, code: EpilogueCode, problem: GemmProblem, first_pointer: int, guards: Guards):
        self.problem, self.point = problem, code.point
        self.extras, self.outputs, self.scalars = code.extras, code.outputs, code.scalars
        self.first_pointer, self.guards = first_pointer, guards
        self.words = {**_WORDS, **_INTEGER_WORDS} if problem.widens else _WORDS
        self.whole = problem.n % VECTOR == 0
        self.registers: dict[int, int] = {}
        """First word of each extra that is held."""
        held = 0
        for number, access in enumerate(self.extras):
            if words := self._words(access):
                self.registers[number] = held
                held += words
        self.held = held

    def epilogue(self) -> Epilogue:
        """Both snippets."""
        constants: dict[str, Constant | Snippet] = {
            **self.scalars,
            "HELD": self.held,
            "FETCH": self._fetch(),
            "FINISH": self._finish(),
        }
        if self.point is not None:
            constants["POINT"] = self.point
        return Epilogue(self.held, constants)

    # What is loaded how

    def _is_vector(self, access: Access) -> bool:
        """Whether four elements are moved at once."""
        return self.whole and access.dtype in self.words and access.vector_bytes(VECTOR) > 0

    def _words(self, access: Access) -> int:
        """Words held of an extra: four elements, one if all columns share it, 0 if it is loaded at the end."""
        if access.dtype not in self.words:
            return 0
        if access.strides[-1] == 0:
            return 1
        return self.words[access.dtype] if self._is_vector(access) else 0

    # Addresses

    def _dims(self, row: str) -> list[str]:
        """Lines that give d0, d1, ...: the index along every dim but the column, at `row`."""
        lines: list[str] = []
        batch, rows = self.problem.batch, self.problem.row_dims
        for sizes, first, flat in ((batch, 0, "batch"), (rows, len(batch), row)):
            rest = flat
            for dim in range(len(sizes) - 1, -1, -1):
                name = f"d{first + dim}"
                if dim == 0:
                    lines.append(f"{name} = u32({rest})")
                else:
                    lines.append(f"{name} = remainder({rest}, {sizes[dim]})")
                    lines.append(f"rest{first + dim} = quotient({rest}, {sizes[dim]})")
                    rest = f"rest{first + dim}"
        return lines

    def _address(self, index: int, access: Access, column: str) -> str:
        """Address of the element in the row of d0, d1, ... at `column`."""
        steps = [str(access.offset)] if access.offset else []
        steps += [f"i64(d{dim}) * {s}" for dim, s in enumerate(access.strides[:-1]) if s]
        if access.strides[-1]:
            steps.append(f"i64({column}) * {access.strides[-1]}")
        size = ELEMENT_BYTES[access.dtype]
        offset = f"u64(({' + '.join(steps) or '0'}) * {size})"
        return f"u64(pointers[{self.first_pointer + index}] + {offset})"

    def _near(self) -> list[str]:
        """Lines that give `near`, the row, and `left`, the first column, moved inside for loads."""
        row = f"min(row, u32({self.problem.m - 1}))" if self.guards.rows else "row"
        last = self.problem.n - (VECTOR if self.whole else 1)
        column = f"min(column, u32({last}))" if self.guards.columns else "column"
        return [f"near = {row}", f"left = {column}", *self._dims("near")]

    # Snippets

    def _fetch(self) -> Snippet:
        lines = self._near()
        words: list[str] = []
        for number in self.registers:
            access = self.extras[number]
            address = self._address(number, access, "left")
            count = self._words(access)
            names = [f"w{len(words) + i}" for i in range(count)]
            if count == 1:
                load = _LOADS[4 if access.strides[-1] else ELEMENT_BYTES[access.dtype]]
                lines.append(f"{names[0]} = u32({load}({address}))")
            else:
                lines.append(f"{', '.join(names)} = load_u32x{count}({address})")
            words += names
        return Snippet(("row", "column", "batch"), tuple(lines), f"({', '.join(words)},)" if words else "")

    def _finish(self) -> Snippet:
        lines = self._near()
        values: list[list[str]] = []
        """Names of an extra's values by lane."""
        for number, access in enumerate(self.extras):
            names = [f"e{number}_{lane}" for lane in range(VECTOR)]
            if number in self.registers:
                lines += self._unpacked(number, access, names)
            else:
                lines += self._loaded(number, access, names)
            values.append(names)
        for lane in range(VECTOR):
            lines += self._computed(lane, [names[lane] for names in values])
        stores = [line for index in range(len(self.outputs)) for line in self._stored(index)]
        tests = [f"row < {self.problem.m}"] if self.guards.rows else []
        if self.guards.columns and self.whole:
            tests.append(f"column < {self.problem.n}")
        if tests:
            stores = [
                "\n    ".join([f"if {' and '.join(tests)}:", *(s.replace("\n", "\n    ") for s in stores)])
            ]
        return Snippet(("row", "column", "batch", "held", "sums"), (*lines, *stores))

    def _unpacked(self, number: int, access: Access, names: Sequence[str]) -> list[str]:
        """Lines from held words to f32 values, or i32 ones of integers."""
        first, count = self.registers[number], self._words(access)
        words = [f"held[{first + i}]" for i in range(count)]
        if access.dtype == "f32":
            return [f"{name} = bits_to_f32({words[lane % count]})" for lane, name in enumerate(names)]
        if access.dtype == "i32":
            return [f"{name} = i32({words[lane % count]})" for lane, name in enumerate(names)]
        if access.dtype in SHORT_INTEGERS and access.strides[-1]:
            return [f"{', '.join(names)} = unpack_{access.dtype}x4({words[0]})"]
        if access.dtype in SHORT_INTEGERS:
            return [f"{name} = {wrapped_text(words[0], access.dtype)}" for name in names]
        if access.dtype in FLOAT8 and access.strides[-1]:
            return float8_unpacked(access.dtype, words[0], names)
        if count == 1:
            return [f"{name} = {access.dtype}_to_f32(u16({words[0]}))" for name in names]
        pairs = zip(names[::2], names[1::2], words, strict=True)
        return [f"{low}, {high} = unpack_{access.dtype}({word})" for low, high, word in pairs]

    def _loaded(self, number: int, access: Access, names: Sequence[str]) -> list[str]:
        """Lines that load each element by itself, never past the last column."""
        lines: list[str] = []
        last = self.problem.n - 1
        for lane, name in enumerate(names):
            column = f"left + {lane}" if self.whole else f"min(u32(column + {lane}), u32({last}))"
            lines.append(f"{name} = splice(LOAD_{access.dtype}, {self._address(number, access, column)})")
        return lines

    def _computed(self, lane: int, extras: Sequence[str]) -> list[str]:
        """Lines that give v<output>_<lane>."""
        sums = [f"sums[{VECTOR * factor + lane}]" for factor in range(self.problem.factors)]
        if self.point is None:
            return [f"v{factor}_{lane} = {value}" for factor, value in enumerate(sums)]
        if self.problem.dtype in SHORT_INTEGERS and not self.problem.widens:
            sums = [wrapped_text(value, self.problem.dtype) for value in sums]
        dims = [f"i32(d{dim})" for dim in range(len(self.problem.batch) + len(self.problem.row_dims))]
        nowhere = ["u64(0)"] * len(self.outputs)  # the point is told where outputs start, and stores nothing
        given = [*sums, *extras, *dims, f"i32(column + {lane})", *nowhere]
        call = f"splice(POINT, {', '.join(given)})"
        if len(self.outputs) == 1:
            return [f"v0_{lane} = {call}"]
        return [f"{', '.join(f'v{o}_{lane}' for o in range(len(self.outputs)))} = {call}"]

    def _stored(self, output: int) -> list[str]:
        """Statements that store one output's four values; each may be several lines of text."""
        access = self.outputs[output]
        index = len(self.extras) + output
        names = [f"v{output}_{lane}" for lane in range(VECTOR)]
        if self._is_vector(access):
            address = self._address(index, access, "column")
            if access.dtype in ("f32", "i32"):
                return [f"store_{access.dtype}x4({address}, {', '.join(names)})"]
            if access.dtype in FLOAT8:
                return [f"store_u32({address}, {float8_packed(access.dtype, names)})"]
            if access.dtype in SHORT_INTEGERS:
                return [f"store_u32({address}, pack_bytes({', '.join(names)}))"]
            pairs = [
                f"pack_{access.dtype}({low}, {high})"
                for low, high in zip(names[::2], names[1::2], strict=True)
            ]
            return [f"store_u32x2({address}, {', '.join(pairs)})"]
        lines: list[str] = []
        for lane, name in enumerate(names):
            column = f"column + {lane}"
            store = f"splice(STORE_{access.dtype}, {self._address(index, access, column)}, {name})"
            lines.append(store if self.whole else f"if {column} < {self.problem.n}:\n    {store}")
        return lines
