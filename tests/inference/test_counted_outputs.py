"""Outputs whose number of rows follows from the data: what a session hands out, and what is on memory of the caller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf import InferenceSession
from aicf.errors import InputMismatch
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.raise_emit import RaiseEmitPass

TEXT = """
func.func @f(%x : tensor<5x3xf32> {logical.name = "x", logical.role = "input"},
             %n : tensor<i64> {logical.name = "n", logical.role = "input"})
    -> (tensor<5x3xf32> {logical.name = "y"}, tensor<3x5xf32> {logical.name = "t"},
        tensor<5x3xf32> {logical.name = "z"},
        tensor<i64> {logical.name = "y.count", aicf.counts = {y = 0 : i64, t = 1 : i64}}) {
  %0 = logical.exp %x : tensor<5x3xf32>
  %1 = logical.transpose %0 {permutation = [1, 0]} : tensor<5x3xf32> -> tensor<3x5xf32>
  %2 = logical.neg %x : tensor<5x3xf32>
  %3 = logical.neg %n : tensor<i64>
  %4 = logical.neg %3 : tensor<i64>
  func.return %0, %1, %2, %4 : tensor<5x3xf32>, tensor<3x5xf32>, tensor<5x3xf32>, tensor<i64>
}
"""
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def feeds(count: int) -> dict[str, np.ndarray]:
    return {"x": X, "n": np.array(count)}


def sessions(folder: Path) -> list[InferenceSession]:
    """Of text, of a compiled model, of an artifact, and of an emit program."""
    compiled = aicf.compile(TEXT, target="cpu")
    compiled.save(folder / "model.aicf")
    return [
        InferenceSession(TEXT),
        InferenceSession(compiled),
        InferenceSession(folder / "model.aicf"),
        InferenceSession(compiled.ir("plan-capture")),
    ]


def test_as_many_rows_as_there_are(tmp_path: Path) -> None:
    for session in sessions(tmp_path):
        assert {spec.name: spec.shape for spec in session.output_info} == {
            "y": ("?", 3),
            "t": (3, "?"),
            "z": (5, 3),
        }
        for count in (0, 2, 5):
            found = session.run(feeds(count))
            assert list(found) == ["y", "t", "z"]
            np.testing.assert_allclose(found["y"], np.exp(X[:count]), 1e-5)
            np.testing.assert_allclose(found["t"], np.exp(X[:count].T), 1e-5)
            np.testing.assert_array_equal(found["z"], -X)
        assert session.run(feeds(2), ["t"])["t"].shape == (3, 2)
        session.close()


def test_memory_of_the_caller_has_room_for_all_rows() -> None:
    with InferenceSession(TEXT) as session:
        room = np.full((5, 3), np.nan, np.float32)
        found = session.run(feeds(2), out={"y": room})
        assert found["y"].base is room and found["y"].shape == (2, 3)
        np.testing.assert_allclose(room, np.exp(X), 1e-5)
        with pytest.raises(InputMismatch, match="y"):
            session.run(feeds(2), out={"y": room[:2]})


def test_a_binding_gives_all_rows_and_the_count() -> None:
    with InferenceSession(TEXT) as session:
        binding = session.bind(feeds(3))
        binding.run()
        outputs = binding.outputs()
        assert list(outputs) == ["y", "t", "z", "y.count"]
        assert outputs["y"].shape == (5, 3) and int(outputs["y.count"]) == 3
        assert int(binding["y.count"]) == 3


def test_a_compiled_model_gives_what_its_program_gives() -> None:
    y, t, z, count = aicf.compile(TEXT, target="cpu")(feeds(4))
    assert y.shape == (5, 3) and t.shape == (3, 5) and z.shape == (5, 3) and int(count) == 4


def test_counts_survive_raising() -> None:
    """An emit program that becomes logical again, and is compiled once more."""
    module = parse_module(aicf.compile(TEXT, target="cpu").ir("plan-capture"))
    RaiseEmitPass().apply(make_context(), module)
    assert "aicf.counts = {y = 0 : i64, t = 1 : i64}" in str(module)
    with InferenceSession(module) as session:
        assert session.run(feeds(2))["t"].shape == (3, 2)
