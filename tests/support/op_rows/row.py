"""A row of the table of ops: how to draw one use of an op, and what it gives in float64, told without `aicf.semantics`.

Hypothesis draws shapes and attributes; values follow from a drawn seed. A row's oracle takes the arrays (floats as
float64) and the attributes by name, as the constructor of the op takes its operands and the attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import element_named, element_of_dtype, tensor

Array = NDArray[Any]
Draw = st.DrawFn
OperandsAndAttrs = tuple[Sequence[Array], Mapping[str, Any]]

FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "i16", "i8", "u8")
SHORT_INTEGERS = ("i16", "i8", "u8")
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "i1")

SIZES = (2, 1, 3, 4, 5, 8, 9, 17, 33)
"""Vectors of all widths, full and with tails."""
MAX_ELEMENTS = 600
ULPS = {"f64": 512, "f32": 256, "f16": 2, "bf16": 2}
"""What a result may be off, in units of the last place of the largest element; 16 bits only round at the end."""


@dataclass(frozen=True)
class Row:
    """An op with a way to use it."""

    op: Callable[..., LogicalOp]
    draw: Callable[[Draw, str], OperandsAndAttrs]
    oracle: Callable[..., Any]
    dtypes: Sequence[str] = FLOATS
    moves: bool = False
    """Whether elements come out bit for bit as they went in."""
    name: str = ""
    typed: bool = False
    """Whether the oracle takes floats in their own type, whose bits it reads."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", getattr(self.op, "name", "").removeprefix("logical."))

    def uses(self, dtype: str) -> st.SearchStrategy[Use]:
        """Uses of the op on an element type."""

        @st.composite
        def use(draw: Draw) -> Use:
            arrays, attributes = self.draw(draw, dtype)
            return Use(self, dtype, tuple(arrays), attributes)

        return use()


@dataclass(frozen=True)
class Use:
    """An op with operands and attributes."""

    row: Row
    dtype: str
    arrays: tuple[Array, ...]
    attributes: Mapping[str, Any]

    def __repr__(self) -> str:
        operands = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self.arrays)
        return f"{self.row.name}({operands}, {dict(self.attributes)})"

    def wanted(self) -> Array:
        """What the oracle says, floats in float64."""
        arrays = self.arrays if self.row.typed else [_in_float64(array) for array in self.arrays]
        with np.errstate(all="ignore"):
            return _in_float64(np.asarray(self.row.oracle(*arrays, **self.attributes)))

    def check(self, found: Array, *, exact: bool = False) -> None:
        """That a result is what the oracle says; ``exact``: computed in float64 with coefficients of f32 at least."""
        wanted = self.wanted()
        assert found.shape == wanted.shape, f"{self}: {found.shape}, wanted {wanted.shape}"
        if not is_float(found):
            np.testing.assert_array_equal(found, wanted, err_msg=str(self))
        elif self.row.moves:
            np.testing.assert_array_equal(self.rounded(found), wanted, err_msg=str(self))
            numbers = ~np.isnan(wanted)
            assert np.array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers]), (
                f"{self}: signs of zeros"
            )
        else:
            dtype = "f32" if exact and self.dtype != "f64" else self.dtype
            assert_close(found, wanted, dtype, str(self))

    def rounded(self, found: Array) -> Array:
        """A result in its own element type, which a cast in exact arithmetic leaves to the reader."""
        with np.errstate(all="ignore"):
            typed = found.astype(element_named(self.attributes.get("element", self.dtype)).dtype)
            return typed.astype(np.float64)


def _in_float64(array: Array) -> Array:
    with np.errstate(invalid="ignore"):  # of a NaN that signals
        return array.astype(np.float64) if is_float(array) else array


def is_float(array: Array) -> bool:
    return element_of_dtype(array.dtype).is_float


def assert_close(found: Array, wanted: Array, dtype: str, what: str) -> None:
    """Infinities and NaN where they are wanted, numbers within `ULPS` of the largest."""
    numbers = np.abs(wanted[np.isfinite(wanted)])
    unit = math.ldexp(1.0, -{"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[dtype])
    tolerance = ULPS[dtype] * unit * max(1.0, float(np.max(numbers, initial=0.0)))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=0, atol=tolerance, err_msg=what)


def program(uses: Sequence[Use]) -> tuple[ModuleOp, dict[str, Array]]:
    """One function with a result ``y0``, ``y1`` and so on for each use, and its inputs by name."""
    block, inputs, results = Block(), {}, []
    for use in uses:
        operands = []
        for array in use.arrays:
            operands.append(block.insert_arg(tensor(array.shape, element_of_dtype(array.dtype)), len(inputs)))
            inputs[f"x{len(inputs)}"] = array
        op = use.row.op(*operands, **use.attributes)
        block.add_op(op)
        results.append(op.result)
    block.add_op(ReturnOp(*results))
    types = [argument.type for argument in block.args], [result.type for result in results]
    function = FuncOp(
        "uses",
        types,
        Region(block),
        arg_attrs=ArrayAttr(_names(inputs, {"logical.role": StringAttr("input")})),
        res_attrs=ArrayAttr(_names([f"y{number}" for number in range(len(uses))], {})),
    )
    return ModuleOp([function]), inputs


def _names(
    names: Sequence[str] | Mapping[str, Array], more: Mapping[str, StringAttr]
) -> list[DictionaryAttr]:
    return [DictionaryAttr({"logical.name": StringAttr(name), **more}) for name in names]


def shape(draw: Draw, min_rank: int = 1, max_rank: int = 4) -> tuple[int, ...]:
    """A shape of few elements."""
    sizes = draw(st.lists(st.sampled_from(SIZES), min_size=min_rank, max_size=max_rank))
    while math.prod(sizes) > MAX_ELEMENTS:
        sizes[sizes.index(max(sizes))] = 2
    return tuple(sizes)


def axis_of(draw: Draw, sizes: Sequence[int]) -> int:
    return draw(st.integers(0, len(sizes) - 1))


def random_of(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def values(draw: Draw, dtype: str, sizes: Sequence[int], *, special: bool = True) -> Array:
    """Plain numbers, many equal ones, or with NaN, infinities and the limits of the type among them."""
    random, kinds = random_of(draw), ["plain", "equal", "special"] if special else ["plain", "equal"]
    kind, element = draw(st.sampled_from(kinds)), element_named(dtype)
    if element.kind == "bool":
        return random.random(sizes) < 0.5
    if kind == "equal":
        low = 0 if dtype == "u8" else -2
        return random.integers(low, 3, sizes).astype(element.dtype)
    if element.is_float:
        ordinary, edges = 2 * random.normal(size=sizes), [np.nan, np.inf, -np.inf, -0.0, 0.0]
    else:
        limits = np.iinfo(element.dtype)
        ordinary, edges = random.integers(max(limits.min, -99), 100, sizes), [limits.min, limits.max, 0]
    if kind == "special":
        ordinary = np.where(random.random(sizes) < 0.2, random.choice(edges, sizes), ordinary)
    return np.asarray(ordinary).astype(element.dtype)


def indices(draw: Draw, sizes: Sequence[int], count: int) -> Array:
    """Indices into ``count`` elements, from both ends, a few out of range."""
    dtype = draw(st.sampled_from([np.int64, np.int32]))
    return np.asarray(random_of(draw).integers(-count - 2, count + 2, sizes)).astype(dtype)
