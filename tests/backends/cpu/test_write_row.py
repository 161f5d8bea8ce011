"""Rows that are written into a state, against NumPy: in place and not, in range and out of it."""

from __future__ import annotations

import numpy as np
import pytest

import aicf

SIZE, WIDTH = 11, 6


def program_of(rows: int, *, reads_old: bool = False, target: str = "cpu") -> aicf.CompiledModel:
    """New rows from an index on into a state, whose old value another output reads."""
    graph = aicf.Graph("write")
    state = graph.state("state", (SIZE, 3, WIDTH))
    new, first = graph.input("new", (rows, 3, WIDTH)), graph.input("first", (1,), "i64")
    written = graph.scatter(state, graph.add(graph.iota((rows,), 0, "i64"), first), new)
    graph.update(state, written)
    graph.output(graph.reduce_sum(written, (0,)), "sum")
    if reads_old:
        graph.output(graph.neg(state), "old")
    return aicf.compile(graph, {"state": np.zeros((SIZE, 3, WIDTH), np.float32)}, target)


def expected_of(state: np.ndarray, new: np.ndarray, first: int) -> np.ndarray:
    result = state.copy()
    for number, row in enumerate(new):
        if -SIZE <= first + number < SIZE:
            result[first + number] = row
    return result


@pytest.mark.parametrize("rows", [1, 4, SIZE])
@pytest.mark.parametrize("reads_old", [False, True])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_rows_go_where_the_index_says(rows: int, reads_old: bool, target: str) -> None:
    """From the end where it is negative, nowhere where it is out of range."""
    rng = np.random.default_rng(rows)
    program = program_of(rows, reads_old=reads_old, target=target)
    assert target != "cpu" or "cpu.write_row" in program.ir("emit")
    state = np.zeros((SIZE, 3, WIDTH), np.float32)
    for first in (0, 3, SIZE - 2, SIZE, -1, -3, -SIZE, -SIZE - 1):
        new = rng.standard_normal((rows, 3, WIDTH)).astype(np.float32)
        found = program(new=new, first=np.array([first]))
        state, old = expected_of(state, new, first), state
        total = found[0] if reads_old else found
        np.testing.assert_allclose(total, state.sum(0), atol=1e-5)
        np.testing.assert_array_equal(program.state()["state"], state)
        if reads_old:
            np.testing.assert_array_equal(found[1], -old)


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "reference"])
def test_each_batch_element_has_an_index_of_its_own(target: str) -> None:
    """As sequences of a batch are at positions of their own; in place, and with two leading dimensions."""
    rng, lead, shape = np.random.default_rng(7), (2, 3), (2, 3, SIZE, WIDTH)
    graph = aicf.Graph("write")
    state, new = graph.state("state", shape), graph.input("new", (*lead, 1, WIDTH))
    at = graph.broadcast_to(graph.reshape(graph.input("at", lead, "i64"), (*lead, 1, 1)), new.shape)
    graph.update(state, graph.scatter_elements(state, at, new, 2))
    values = np.zeros(shape, np.float32)
    program = aicf.compile(graph, {"state": values}, target)
    assert target == "reference" or "cpu.write_row" in program.ir("emit")
    for _ in range(9):
        rows, index = (
            rng.standard_normal((*lead, 1, WIDTH)).astype(np.float32),
            rng.integers(-SIZE - 2, SIZE + 2, lead),
        )
        program(new=rows, at=index)
        for batch in np.ndindex(lead):
            if -SIZE <= index[batch] < SIZE:
                values[batch][index[batch]] = rows[batch][0]
        np.testing.assert_array_equal(program.state()["state"], values)
    assert "in place" in str(program.explain("state"))


def test_a_state_is_not_copied() -> None:
    program = program_of(4)
    assert "in place" in str(program.explain("state"))
    assert "last_update" not in program.ir("lowered")
