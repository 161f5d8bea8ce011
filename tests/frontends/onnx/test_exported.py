# pyright: basic, reportMissingImports=false
# The modules of benchmarks/models are found by a path that the fixture sets.
"""Well-known architectures, exported by PyTorch with random weights: the outputs are PyTorch's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aicf

pytestmark = pytest.mark.peers

FOLDER = Path(__file__).parents[3] / "benchmarks" / "models"
NAMES = ("mobilenet_v2", "vit", "t5_encoder", "lstm")
"""What has no dimension that the file leaves open; the others are in `OPEN`."""
OPEN = {
    "resnet": (("x", 0, "batch"),),
    "bert": (("input_ids", 0, "batch"), ("attention_mask", 0, "batch")),
}
"""Input, axis and name of dimensions that the file leaves open."""
WITHIN = 1e-4


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/models is no package: a folder named `benchmarks` on the path would hide `cuda`."""
    monkeypatch.syspath_prepend(FOLDER)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_pytorch(name: str) -> None:
    from architectures import make

    made = make(name)
    expected = {key: value.numpy() for key, value in made.run().items()}
    exe = aicf.compile(made.exported())
    found = exe.run({key: value.numpy() for key, value in made.inputs.items()})
    assert list(found) == list(expected)
    for key, value in found.items():
        assert np.abs(expected[key]).max() > 0.01  # something came through all layers
        np.testing.assert_allclose(value, expected[key], rtol=WITHIN, atol=WITHIN)


@pytest.mark.parametrize("name", OPEN)
def test_one_program_for_each_batch(name: str) -> None:
    """A file with open dimensions, at two sizes, neither of which it was exported at."""
    import torch
    from architectures import make

    made = make(name)
    exe = aicf.compile(made.exported(OPEN[name]), dims={"batch": [1, 3]})
    for batch in (1, 3):
        inputs = {
            key: torch.cat([value, value.flip(0)])[1 : 1 + batch].contiguous()
            for key, value in made.inputs.items()
        }
        with torch.inference_mode():
            expected = made.module(*inputs.values()).numpy()
        assert np.abs(expected).max() > 0.01
        (found,) = exe.run({key: value.numpy() for key, value in inputs.items()}).values()
        np.testing.assert_allclose(found, expected, rtol=WITHIN, atol=WITHIN)
