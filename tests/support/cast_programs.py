"""Random programs of casts: chains of them of updated parameters and of inputs, whose values are read by ops of every
kind, by views, and by the caller; and what they give, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.dialects.types import element_named

Array = NDArray[Any]

FLOATS, INTEGERS = ("f64", "f32", "f16", "bf16"), ("i64", "i32", "i16", "i8", "u8")
_ROWS, _COLUMNS = 6, 20
_SHAPE = (_ROWS, _COLUMNS)


@dataclass
class CastProgram:
    """A random program. Each op of a chain rounds to its own type, and so does `wanted`.

    Args:
        random: What draws it.
        arrays: Values of its parameters and inputs, by name.
        wanted: What it has to give, by name of the result or of the updated parameter.
        within: How much a result may differ from that, relative to its largest element; 0 where it is exact.
    """

    random: np.random.Generator
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])
    params: list[str] = field(default_factory=list[str])
    wanted: dict[str, Array] = field(default_factory=dict[str, Array])
    within: dict[str, float] = field(default_factory=dict[str, float])
    arguments: list[str] = field(default_factory=list[str])
    lines: list[str] = field(default_factory=list[str])
    results: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    types: dict[str, str] = field(default_factory=dict[str, str])
    values: dict[str, Array] = field(default_factory=dict[str, Array])

    def text(self, chains: int) -> str:
        """The module: `chains` values that are cast on and on, about half of them updated parameters."""
        for number in range(chains):
            self._chain(f"p{number}" if self.random.random() < 0.6 else f"x{number}")
        return self._module()

    def round_trips(self, name: str, through: Sequence[str]) -> str:
        """The module: an f32 value that goes to each of the types and back, read as a product, a row sum and its
        negative; and a second one, so that an instruction has casts of two."""
        for each, narrow in [(name, through), (f"{name}_other", through[:1])]:
            value = self._argument(each, "f32")
            for dtype in narrow:
                back = self._cast(self._cast(value, dtype), "f32")
                for read in (self._return_product, self._return_sum, self._return_negative):
                    read(back)
            self._update(each, value)
        return self._module()

    def _module(self) -> str:
        types = ", ".join(f"{type_} {{{attribute}}}" for _, type_, attribute in self.results)
        body = "\n  ".join(self.lines)
        given, result_types = (", ".join(entry[index] for entry in self.results) for index in (0, 1))
        return (
            f"func.func @casts({', '.join(self.arguments)}) -> ({types}) {{\n  {body}\n"
            f"  func.return {given} : {result_types}\n}}\n"
        )

    def _chain(self, name: str) -> None:
        dtype = self._one(("f32", "f32", "f16", "bf16", "f64", "i8", "i32"))
        values = [self._argument(name, dtype)]
        for _ in range(self.random.integers(1, 6)):
            values.append(self._step(self._one(values)))
        for value in values:
            for _ in range(self.random.choice([0, 1, 1, 2])):
                self._read(value)
        self._update(name, values[0])
        if name not in self.params and not any(f"%{name}" in line for line in self.lines):
            self._return(self._neg(values[0]))

    def _update(self, name: str, value: str) -> None:
        """Gives a parameter its negative as the new value."""
        if name in self.params:
            new = self._neg(value)
            self.results.append((new, self._type(new), f'logical.updates = "{name}"'))
            self.wanted[name], self.within[name] = self.values[new], 0.0

    def _argument(self, name: str, dtype: str) -> str:
        """Numbers that every type here holds, most of them between two numbers of the narrow ones."""
        element = element_named(dtype)
        values = self.random.uniform(0, 60, _SHAPE)
        array = (values if element.kind == "float" else np.floor(values)).astype(element.dtype)
        self.arrays[name] = array
        if name.startswith("p"):
            self.params.append(name)
        role = "param" if name in self.params else "input"
        value = f"%{name}"
        self.types[value], self.values[value] = dtype, array
        self.arguments.append(
            f'{value} : {self._type(value)} {{logical.name = "{name}", logical.role = "{role}"}}'
        )
        return value

    def _step(self, value: str) -> str:
        """Mostly a cast; integers are never negative, so no cast to unsigned ones has another meaning."""
        if self.types[value] in FLOATS and self.random.random() < 0.25:
            return self._half(value)
        return self._cast(value, self._one((*FLOATS, *FLOATS, *INTEGERS)))

    def _cast(self, value: str, dtype: str) -> str:
        if dtype == self.types[value]:
            return value
        array = self.values[value].astype(np.float64).astype(element_named(dtype).dtype)
        name = self._new(dtype, array)
        self.lines.append(f"{name} = logical.cast {value} : {self._type(value)} -> {self._type(name)}")
        return name

    def _half(self, value: str) -> str:
        dtype = self.types[value]
        array = (self.values[value].astype(np.float64) * 0.75).astype(element_named(dtype).dtype)
        factor = self._new(dtype, np.full(_SHAPE, 0.75))
        self.lines.append(f"{factor} = logical.constant dense<0.75> : {self._type(factor)}")
        name = self._new(dtype, array)
        self.lines.append(f"{name} = logical.mul {value}, {factor} : {self._type(value)}")
        return name

    def _neg(self, value: str) -> str:
        name = self._new(self.types[value], -self.values[value])
        self.lines.append(f"{name} = logical.neg {value} : {self._type(value)}")
        return name

    # What reads a value

    def _read(self, value: str) -> None:
        readers = [self._return, self._return_reshaped, self._return_transposed, self._return_negative]
        if self.types[value] in FLOATS:
            readers += [self._return_sum, self._return_column_sum, self._return_product, self._return_both]
        readers[self.random.integers(len(readers))](value)

    def _return(self, value: str, within: float = 0.0) -> None:
        name = f"r{len(self.results)}"
        self.results.append((value, self._type(value), f'logical.name = "{name}"'))
        self.wanted[name], self.within[name] = self.values[value], within

    def _return_reshaped(self, value: str) -> None:
        name = self._new(self.types[value], self.values[value].reshape(_COLUMNS, _ROWS))
        self.lines.append(f"{name} = logical.reshape {value} : {self._type(value)} -> {self._type(name)}")
        self._return(name)

    def _return_transposed(self, value: str) -> None:
        name = self._new(self.types[value], self.values[value].T)
        self.lines.append(
            f"{name} = logical.transpose {value} {{permutation = [1, 0]}} : "
            f"{self._type(value)} -> {self._type(name)}"
        )
        self._return(name)

    def _return_negative(self, value: str) -> None:
        self._return(self._neg(value))

    def _return_sum(self, value: str) -> None:
        self._sum(value, 1)

    def _return_column_sum(self, value: str) -> None:
        self._sum(value, 0)

    def _sum(self, value: str, axis: int) -> None:
        dtype = self.types[value]
        exact = self.values[value].astype(np.float64).sum(axis)
        name = self._new(dtype, exact)
        self.lines.append(
            f"{name} = logical.reduce_sum {value} {{axes = [{axis}]}} : {self._type(value)} -> {self._type(name)}"
        )
        self._return(name, _WITHIN[dtype])

    def _return_product(self, value: str) -> None:
        dtype = self.types[value]
        exact = self.values[value].astype(np.float64)
        name = self._new(dtype, exact @ exact.T)
        type_ = self._type(value)
        self.lines.append(
            f"{name} = logical.matmul {value}, {value} {{transpose_b}} : ({type_}, {type_}) -> {self._type(name)}"
        )
        self._return(name, _WITHIN[dtype])

    def _return_both(self, value: str) -> None:
        """Its sum with another value of its type, of whatever chain."""
        alike = [name for name in self.values if self._type(name) == self._type(value)]
        other = self._one(alike)
        array = self.values[value].astype(np.float64) + self.values[other].astype(np.float64)
        name = self._new(self.types[value], array.astype(element_named(self.types[value]).dtype))
        self.lines.append(f"{name} = logical.add {value}, {other} : {self._type(value)}")
        self._return(name)

    def _new(self, dtype: str, array: Array) -> str:
        name = f"%v{len(self.types)}"
        self.types[name], self.values[name] = dtype, array
        return name

    def _type(self, value: str) -> str:
        sizes = "x".join(map(str, self.values[value].shape))
        element = "ui8" if self.types[value] == "u8" else self.types[value]
        return f"tensor<{sizes}x{element}>"

    def _one(self, choices: Sequence[str]) -> str:
        return choices[int(self.random.integers(len(choices)))]


_WITHIN = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 1.6e-2}
"""What sums round, relative to the largest one."""
