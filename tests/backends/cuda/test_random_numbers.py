"""Random numbers compiled for cuda: the bits of the semantics on a simulated GPU, and all words of a counter used."""

from __future__ import annotations

import pytest

from tests.backends.cuda.sass import SPILLS, starting
from tests.backends.cuda.test_generated_programs import compiled, simulated
from tests.backends.cuda.test_indexing import sass
from tests.support.indexing_programs import Inputs
from tests.support.random_graphs import run_program
from tests.support.random_programs import KEYS, assert_same_numbers, random_inputs, random_numbers


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("f32", 1e-5), ("f16", 4e-3), ("bf16", 3e-2), ("f64", 1e-12)]
)
def test_the_bits_of_the_semantics(dtype: str, tolerance: float) -> None:
    """Vectors and tails; counters that pass 2^64."""
    module = random_numbers(dtype).module()
    inputs = random_inputs(dtype, *KEYS[1])
    wanted = run_program(module, inputs, "typed")
    assert_same_numbers(simulated(*compiled(module.clone()), inputs), wanted, tolerance)


def test_neighbours_share_a_counter() -> None:
    """Dropout of four elements takes ten rounds of two wide products, once."""
    inputs = Inputs("f32")
    g, x = inputs.graph, inputs.data(512, 1024)
    g.output(g.dropout(x, g.input("s", (), "i64"), g.input("o", (), "i64"), 0.1), "y")
    names = sass(inputs)
    assert "LDG.E.128" in names and "STG.E.128" in names and not starting(names, SPILLS)
    assert len([name for name in names if name.startswith("IMAD.WIDE.U32")]) <= 24
