"""Divisions of several numbers by one: the text of the generated code against the division of IEEE, bit by bit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aicf.backends.cuda.codegen.division import by_one_number
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.loops.codegen import launches_of
from tests.backends.cpu.kernels_text import softmax
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.test_generated import chosen_spec, recorded, references

F32 = np.float32
LANES = 4


def fma(a: Any, b: Any, c: Any) -> Any:
    """Rounded once: a product of f32 has 48 bits, and a sum of it and another number few more than 64."""
    return F32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))


class Divider:
    """The code for a vector, and how often it took the short way."""

    def __init__(self) -> None:
        lines: list[str] = []
        found = by_one_number([f"x[{lane}]" for lane in range(LANES)], "y", "d_", lines)
        self.code = compile("\n".join(lines), "division", "exec")
        self.names, self.exact = found, 0
        libdevice = SimpleNamespace(fdiv_rn=self.divided, fabsf=np.abs, fminf=np.fmin, fmaxf=np.fmax)
        self.given = {"f32": F32, "cuda": SimpleNamespace(fma=fma, libdevice=libdevice)}

    def divided(self, a: Any, b: Any) -> Any:
        self.exact += 1
        return F32(a) / F32(b)

    def __call__(self, x: np.ndarray, y: Any) -> np.ndarray:
        names: dict[str, Any] = {**self.given, "x": x, "y": y}
        with np.errstate(all="ignore"):
            exec(self.code, names)
        return np.array([names[name] for name in self.names], F32)


def bits(x: np.ndarray) -> np.ndarray:
    """Any NaN is like any other."""
    return np.where(np.isnan(x), F32(np.nan), x).astype(F32).view(np.uint32)


def drawn(random: np.random.Generator, count: int, exponents: tuple[int, int]) -> np.ndarray:
    powers = random.integers(*exponents, count).astype(np.float64)
    return (random.choice([-1.0, 1.0], count) * (1 + random.random(count)) * 2.0**powers).astype(F32)


@pytest.mark.parametrize("exponents", [(-3, 3), (-90, 90), (-99, 99)])
def test_quotients_are_those_of_ieee(exponents: tuple[int, int]) -> None:
    """The short way, for every draw."""
    random, divide = np.random.default_rng(exponents[1]), Divider()
    for y in drawn(random, 4000, (-19, 19)):
        x = drawn(random, LANES, exponents)
        np.testing.assert_array_equal(bits(divide(x, y)), bits(x / y))
    assert divide.exact == 4000


def test_mantissas_at_the_ends() -> None:
    """Divisors and dividends next to a power of two, where an inverse is least exact."""
    divide, near = Divider(), [F32(1)]
    for _ in range(12):
        near.append(np.nextafter(near[-1], F32(2)))
    near += [
        np.nextafter(F32(2), F32(0)),
        np.nextafter(np.nextafter(F32(2), F32(0)), F32(0)),
        F32(3),
        F32(1.5),
    ]
    for y in near:
        for first in range(0, len(near), LANES):
            x = np.resize(np.array(near[first : first + LANES], F32), LANES)
            np.testing.assert_array_equal(bits(divide(x, y)), bits(x / y))


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3.4e38, 1e-38, 1.5, 2.0**-101, 2.0**101]


@pytest.mark.parametrize("y", [*SPECIAL, 2.0**-21, 2.0**21, 50257.0])
def test_numbers_at_the_ends_of_the_range(y: float) -> None:
    """Zeros keep their signs, and subnormal quotients are rounded once."""
    divide = Divider()
    for number in SPECIAL:
        x = np.array([1.0, number, 3.0, 0.3], F32)
        with np.errstate(all="ignore"):
            wanted = x / F32(y)
        np.testing.assert_array_equal(bits(divide(x, F32(y))), bits(wanted))


@pytest.mark.parametrize(
    ("columns", "dtype"), [(65536, "f32"), (50257, "bf16"), (4096, "f32"), (4096, "f16")]
)
def test_a_softmax_divides_without_spills(columns: int, dtype: str) -> None:
    """Held in registers, and read again."""
    shapes = [(4096, columns)] * 2
    nest, spec = chosen_spec(softmax(4096, columns, dtype), shapes, [dtype] * 2)
    (launch,) = launches_of("k", nest, recorded(nest, spec), references(shapes, [dtype] * 2))
    (cubin,) = compile_kernels([launch.code], "sm_90a").values()
    assert cubin.stack_bytes == 0 and not starting(instructions(cubin), SPILLS)
