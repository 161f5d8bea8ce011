"""Einsum against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from tests.support.onnx_models import expect

EQUATIONS = (
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ij->i", [(3, 4)]),
    ("ii->i", [(4, 4)]),
    ("iji->j", [(3, 4, 3)]),
    ("iii", [(3, 3, 3)]),
    ("...ii->...i", [(2, 4, 4)]),
    ("i,i", [(5,), (5,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij,jk", [(3, 4), (4, 5)]),
    ("bij, bjk -> bik", [(2, 3, 4), (2, 4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
    ("i...,j...->ij...", [(2, 4), (3, 4)]),
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ("ab,bc,ca->", [(2, 3), (3, 4), (4, 2)]),
    ("abc,abc->abc", [(2, 3, 4), (2, 3, 4)]),
    ("abc,cd->bd", [(2, 3, 4), (4, 5)]),
    ("b...->...", [(2, 3)]),
    ("->", [()]),
)


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_equations(equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=shape) for shape in shapes]
    expect(
        "Einsum", inputs, equation=equation, expected=[np.einsum(equation, *inputs)], rtol=1e-12, atol=1e-12
    )


def test_integers() -> None:
    x, y = (np.random.default_rng(seed).integers(-9, 9, (3, 3)) for seed in (0, 1))
    expect("Einsum", [x, y], equation="ij,kj->ki")


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "has 2 terms for 1 operands"),
        ("ijk->i", "does not name 2 dimensions"),
        ("ii->i", "label i of one operand has sizes 3 and 4"),
    ],
)
def test_equations_that_do_not_fit(equation: str, message: str) -> None:
    with pytest.raises(aicf.InvalidIR, match=message):
        expect("Einsum", [np.ones((3, 4), "f4")], equation=equation, expected=[])
