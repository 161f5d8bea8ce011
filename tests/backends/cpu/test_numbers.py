"""Instructions whose scalar code differs only in numbers run one function, and each computes with its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.compilation.compiled import CompiledModel
from tests.backends.cpu.test_conv import LEVELS_HERE

SIZE = 24
Layer = tuple[float, float, float]
"""A layer of a net: a product times the first, plus the second, and at least the third."""


def text_of(layers: Sequence[Layer], dtype: str) -> str:
    """The net; every layer has names of its own."""
    type_ = f"tensor<{SIZE}x{SIZE}x{dtype}>"
    lines = [
        f'func.func @f(%v0 : {type_} {{logical.name = "x", logical.role = "input"}},',
        f'  %w : {type_} {{logical.name = "w", logical.role = "input"}}) -> ({type_} {{logical.name = "y"}}) {{',
    ]
    for index, numbers in enumerate(layers):
        lines.append(f"  %p{index} = logical.matmul %v{index}, %w : ({type_}, {type_}) -> {type_}")
        for name, value in zip("abc", numbers, strict=True):
            lines.append(f"  %{name}{index} = logical.constant dense<{value!r}> : {type_}")
        lines.append(f"  %scaled{index} = logical.mul %p{index}, %a{index} : {type_}")
        lines.append(f"  %moved{index} = logical.add %scaled{index}, %b{index} : {type_}")
        lines.append(f"  %v{index + 1} = logical.max %moved{index}, %c{index} : {type_}")
    return "\n".join([*lines, f"  func.return %v{len(layers)} : {type_}", "}"])


def compiled(layers: Sequence[Layer], level: str, dtype: str = "f32") -> CompiledModel:
    return aicf.compile(text_of(layers, dtype), target=f"cpu:{level}")


def functions(exe: CompiledModel) -> int:
    """Of instructions, in the object code."""
    return len(set(re.findall(rb"instruction_\d+", exe.native.code)))


def operands(dtype: str) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(4)
    return {name: rng.normal(size=(SIZE, SIZE)).astype(f"float{dtype[1:]}") for name in ("x", "w")}


def expected(layers: Sequence[Layer], given: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    x, w = given["x"].astype(np.float64), given["w"].astype(np.float64)
    for scale, shift, least in layers:
        x = np.maximum(x @ w * scale + shift, least)
    return x


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("level", LEVELS_HERE)
def test_layers_share_a_function_and_have_numbers_of_their_own(level: str, dtype: str) -> None:
    rng = np.random.default_rng(7)
    layers = [(*rng.uniform(0.05, 0.3, 2).tolist(), -0.5) for _ in range(4)]
    given = operands(dtype)
    exe = compiled(layers, level, dtype)
    np.testing.assert_allclose(exe.run(given)["y"], expected(layers, given), rtol=1e-4, atol=1e-4)
    assert functions(exe) == functions(compiled(layers[:1], level, dtype))


@pytest.mark.parametrize(
    ("layers", "shared"),
    [
        pytest.param([(0.2, 0.0, -1.0), (0.2, -0.0, -1.0)], True, id="0 and -0"),
        pytest.param([(0.2, 0.1, -1.0), (0.2, 0.1, -1.0)], True, id="the same numbers"),
        pytest.param([(0.2, 0.1, -1.0), (0.2, 0.1, -2.0)], False, id="what a maximum reads"),
        pytest.param([(0.2, 0.1, 0.1), (0.2, 0.3, 0.3)], False, id="what a maximum reads as well"),
        pytest.param([(0.2, 0.2, -1.0), (0.2, 0.3, -1.0)], False, id="one number in two places, and two"),
    ],
)
def test_numbers_that_may_not_be_read_are_in_the_code(layers: Sequence[Layer], shared: bool) -> None:
    given = operands("f32")
    exe = compiled(layers, LEVELS_HERE[-1])
    np.testing.assert_allclose(exe.run(given)["y"], expected(layers, given), rtol=1e-4, atol=1e-4)
    assert (functions(exe) == functions(compiled(layers[:1], LEVELS_HERE[-1]))) == shared


def test_minus_zero_stays_what_it_is() -> None:
    """A product of zeros, times -1, is -0, and stays so if -0 is added."""
    given = operands("f32")
    given["x"][:] = 0
    plus, minus = (-1.0, 0.0, -1.0), (-1.0, -0.0, -1.0)
    for layers in ([plus, minus], [minus, plus]):
        found = compiled(layers, LEVELS_HERE[-1]).run(given)["y"]
        assert np.all(np.signbit(found) == (layers[-1] is minus))
