"""The same models, inputs and bindings in a session here and in one of ONNX Runtime: the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from aicf import InferenceSession
from tests.inference.models import rows
from tests.inference.test_onnx_session import branching, mlp, reshaped

pytestmark = pytest.mark.peers


def peer(proto: onnx.ModelProto) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])


CASES: list[tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]] = [
    (mlp(), [{"x": rows(count, 24, seed=count)} for count in (1, 9)]),
    (reshaped(), [{"x": rows(6), "shape": np.array(shape)} for shape in ([2, 3], [6, 1])]),
    (branching(), [{"x": rows(5), "rate": np.array(rate)} for rate in (8000, 16000)]),
]


@pytest.mark.parametrize(("proto", "calls"), CASES, ids=["mlp", "reshaped", "branching"])
def test_calls_and_bindings_give_what_onnx_runtime_gives(
    proto: onnx.ModelProto, calls: list[dict[str, np.ndarray]]
) -> None:
    theirs = peer(proto)
    with InferenceSession(proto) as ours:
        assert [spec.name for spec in ours.input_info] == [entry.name for entry in theirs.get_inputs()]
        for feeds in calls:
            (wanted,) = theirs.run(["y"], feeds)
            np.testing.assert_allclose(ours.run(feeds, ["y"])["y"], wanted, rtol=1e-4, atol=1e-6)
            y = np.full(wanted.shape, np.nan, np.float32)
            ours.bind({**feeds, "y": y}).run()
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-6)
