"""Gradients beside PyTorch's, for every op: random shapes and attributes; elementwise ops at their kinks too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf.passes.training.differentiate import DifferentiatePass, Unreachable
from tests.support.elementwise_ops import OPS
from tests.support.gradient_programs import SMOOTH_OPS, SMOOTH_ROWS, Array, smooth, with_loss
from tests.support.op_rows.row import Row, is_float, program
from tests.support.random_graphs import run_program

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peers

from tests.support import torch_elementwise, torch_ops  # noqa: E402


def _batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    """By its formula: their function has no gradient by the statistics."""
    sizes = [1, -1, *[1] * (x.dim() - 2)]
    scale, bias, mean, variance = (each.reshape(sizes) for each in (scale, bias, mean, variance))
    return (x - mean) / torch.sqrt(variance + epsilon) * scale + bias


TOLERANCE = 5e-8
"""They hold the slope of a hard sigmoid, 1 / 6, in f32."""

TORCH: Mapping[str, Callable[..., Any]] = {
    **torch_ops.TORCH,
    "batch_norm": _batch_norm,
    "global_norm": lambda *parts: torch.linalg.vector_norm(torch.cat([part.reshape(-1) for part in parts])),
    "clip_factor": lambda norm, max_norm: torch.clamp(max_norm / (norm + 1e-6), max=1.0),
}


def _ours(module: ModuleOp, inputs: Mapping[str, Array], weights: Array) -> dict[str, Array]:
    training, by = with_loss(module, weights)
    DifferentiatePass().apply(Context(), training)
    found = run_program(training, {**inputs, "weights": weights})
    return {name: found[f"d{name}"] for name in by}


def _theirs(function: Callable[..., Any], inputs: Sequence[Array], weights: Array) -> list[Array | None]:
    operands = [torch.tensor(array, requires_grad=is_float(array)) for array in inputs]
    torch.sum(function(*operands) * torch.tensor(weights)).backward()
    return [
        (np.zeros(array.shape) if operand.grad is None else operand.grad.numpy()) if is_float(array) else None
        for operand, array in zip(operands, inputs, strict=True)
    ]


def _compare(module: ModuleOp, inputs: Mapping[str, Array], function: Callable[..., Any], seed: int) -> None:
    (result,) = run_program(module, inputs).values()
    weights = np.random.default_rng(seed).normal(size=result.shape)
    wanted = dict(zip(inputs, _theirs(function, list(inputs.values()), weights), strict=True))
    for name, gradient in _ours(module, inputs, weights).items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


@pytest.mark.parametrize("row", [row for row in SMOOTH_ROWS if row.name in TORCH], ids=lambda row: row.name)
@settings(max_examples=15)
@given(data=st.data())
def test_same_gradient(row: Row, data: st.DataObject) -> None:
    use = data.draw(row.uses("f64").filter(lambda use: use.attributes.get("element", "f64") == "f64"))
    seed = data.draw(st.integers(0, 2**32 - 1))
    module, inputs = program([use])
    inputs = smooth(inputs, np.random.default_rng(seed), positive=row.name == "batch_norm")
    (result,) = run_program(module, inputs).values()
    assume(np.all(np.isfinite(result)))
    try:
        _compare(module, inputs, lambda *operands: TORCH[row.name](*operands, **use.attributes), seed)
    except Unreachable:
        if row.name != "max_pool_grad":
            raise
        reject()  # all windows lie in the padding


def test_every_op_has_a_peer() -> None:
    assert {row.name for row in SMOOTH_ROWS} - TORCH.keys() == {"dropout"}  # whose random numbers are its own


@pytest.mark.parametrize("name", [name for name in SMOOTH_OPS if name != "pow"])
def test_same_gradient_at_kinks(name: str) -> None:
    count = OPS[name].operands
    points = np.array([-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0])
    first, second = (grid.reshape(-1) for grid in np.meshgrid(points, points))
    inputs = {"x0": first, "x1": second} if count == 2 else {"x0": points}
    module = OPS[name].program(inputs["x0"].shape, "f64")
    (result,) = run_program(module, inputs).values()
    kept = np.isfinite(result)
    inputs = {key: values[kept] for key, values in inputs.items()}
    _compare(OPS[name].program(inputs["x0"].shape, "f64"), inputs, torch_elementwise.TORCH[name], 0)
