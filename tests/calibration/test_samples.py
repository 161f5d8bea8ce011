"""Reading samples: every form that fits, and one line for every one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.calibration.samples import read_samples
from aicf.compilation.sources import read_model
from aicf.errors import AicfError, InputMismatch, PolicyError
from aicf.frontends.text import make_context
from aicf.inference.models import interface_of
from tests.calibration.models import TARGET, chain, chain_samples, chain_weights

WEIGHTS, SAMPLES = chain_weights(), chain_samples(70)


def pair(rows: int | str = "N") -> aicf.Graph:
    g = aicf.Graph("pair")
    a, b = g.input("a", (rows, 4)), g.input("b", (4,))
    g.output(a * g.broadcast(b, [1], (rows, 4)), "y")
    return g


def read(model: aicf.Graph, samples: Any, dims: str = ""):
    interface = interface_of(read_model(model, make_context()), {})
    assert interface is not None
    return read_samples(samples, interface, dims)


def rows(model: aicf.Graph, samples: Any, dims: str = "") -> list[int]:
    return [call["x"].shape[0] for call in read(model, samples, dims).calls]


def test_stacked_arrays_are_split_into_calls(tmp_path: Path):
    assert rows(chain(), SAMPLES) == [32, 32, 6]
    assert rows(chain(), {"x": SAMPLES[:8]}) == [8]
    assert rows(chain(rows=7), SAMPLES) == [7] * 10
    assert rows(chain(), SAMPLES, "N=1,30") == [30, 30] + [1] * 10
    np.savez(tmp_path / "s.npz", x=SAMPLES)
    assert rows(chain(), tmp_path / "s.npz") == [32, 32, 6]
    found = read(chain(), SAMPLES)
    assert found.count == 70 and found.dims == "N=6,32"
    np.testing.assert_array_equal(np.concatenate([call["x"] for call in found.calls]), SAMPLES)


def test_an_input_without_a_batch_takes_one_row_a_call():
    found = read(
        pair(), {"a": np.ones((3, 4), np.float32), "b": np.arange(12, dtype=np.float32).reshape(3, 4)}
    )
    assert [(call["a"].shape, call["b"][0]) for call in found.calls] == [
        ((1, 4), 0),
        ((1, 4), 4),
        ((1, 4), 8),
    ]


def test_calls_one_by_one():
    for samples in (
        [{"x": SAMPLES[:3]}, {"x": SAMPLES[:5]}],
        ((SAMPLES[:3],), (SAMPLES[:5],)),
        iter([SAMPLES[:3], SAMPLES[:5]]),
    ):
        found = read(chain(), samples)
        assert [call["x"].shape[0] for call in found.calls] == [3, 5] and found.dims == "N=3,5"
        assert found.count == 2


NAN, INF = SAMPLES.copy(), SAMPLES.copy()
NAN[40, 3], INF[2, 1] = np.nan, -np.inf

WRONG: list[tuple[aicf.Graph, Any, str, str]] = [
    (chain(), NAN, "", "sample 40: input 'x' has nan at [3]; expected finite numbers, leave the sample out"),
    (chain(), [SAMPLES[:2], INF[:4]], "", "sample 1: input 'x' has -inf at [2, 1]; expected finite numbers"),
    (chain(), [], "", "samples: there are none; give stacked arrays"),
    (chain(), SAMPLES[:0], "", "samples: there are none; give stacked arrays"),
    (chain(), 3, "", "samples: 3 are none; give stacked arrays"),
    (chain(), b"x", "", "samples: b'x' are none"),
    (
        chain(),
        SAMPLES[:, :5],
        "",
        "sample 0: input 'x': expected f32[N, 16], got f32[32, 5]; the model fixes",
    ),
    (
        chain(),
        SAMPLES.astype(np.float64),
        "",
        "sample 0: input 'x': expected f32[32, 16], got f64[32, 16]; convert",
    ),
    (
        chain(),
        np.asarray(SAMPLES[0, 0]),
        "",
        "samples: input 'x' is f32[N, 16]; stacked it has rank 2 or 3, got 0",
    ),
    (
        chain(rows=8),
        SAMPLES,
        "",
        "samples: 70 rows, and the model takes 8 at a time; 6 are left over, leave them out",
    ),
    (chain(), SAMPLES, "N=32", "samples: 70 rows, and the model takes 32 at a time; 6 are left over"),
    (chain(), [SAMPLES[:5]], "N=3", "sample 0: N is 5; expected one of dims=N=3"),
    (chain(), [{"z": SAMPLES}], "", "sample 0: there is no input 'z'; it has x"),
    (chain(), [(SAMPLES, SAMPLES)], "", "sample 0: expected 1 inputs, got 2"),
    (chain(), {"x": SAMPLES, "z": SAMPLES}, "", "samples: there is no input 'z'"),
    (chain(), "nowhere.npz", "", "cannot read the samples: "),
    (pair(), SAMPLES, "", "samples: one array, but the model has 2 inputs; give arrays by name: a, b"),
    (
        pair(),
        {"a": SAMPLES[:3, :4], "b": SAMPLES[:2, :4]},
        "",
        "samples: the first dimension is that of the samples, ",
    ),
    (
        pair(3),
        {"a": SAMPLES[:3, :4], "b": SAMPLES[:3, :4]},
        "",
        "samples: one call takes 3 of 'a', 1 of 'b'; ",
    ),
    (
        chain(),
        [SAMPLES[:n] for n in range(1, 20)],
        "",
        "samples: they have 19 sizes of N, each of which is a program",
    ),
]


@pytest.mark.parametrize(("model", "samples", "dims", "message"), WRONG)
def test_errors_name_sample_and_input(model: aicf.Graph, samples: Any, dims: str, message: str):
    with pytest.raises(InputMismatch) as error:
        read(model, samples, dims)
    assert error.value.message.startswith(message) and "\n" not in error.value.message


def test_files_that_hold_something_else(tmp_path: Path):
    np.save(tmp_path / "one.npy", SAMPLES)
    (tmp_path / "text.npz").write_text("no")
    for name in ("one.npy", "text.npz"):
        with pytest.raises(InputMismatch, match="cannot read the samples: .*; write them with numpy.savez"):
            read(chain(), tmp_path / name)


ARGUMENTS: list[tuple[dict[str, Any], type[AicfError], str]] = [
    (
        {"to": "int4"},
        PolicyError,
        "to: 'int4' is not legal; did you mean 'int8'? legal: int8, fp8, bf16, f16",
    ),
    ({"method": "mean"}, PolicyError, "method: 'mean' is not legal; "),
    ({"activations": "signed"}, PolicyError, "activations: 'signed' is not legal; "),
    ({"percentile": 20}, PolicyError, "percentile: 20 is no number from 50 to 100"),
    ({"percentile": True}, PolicyError, "percentile: True is no number from 50 to 100"),
    ({"smooth": 1.5}, PolicyError, "smooth: 1.5 is no number from 0 to 1"),
    ({"correct_bias": 1}, PolicyError, "correct_bias is 1; give True or False"),
    (
        {"to": "bf16", "smooth": 0.5},
        PolicyError,
        "smooth: only numbers of 8 bits have ranges, and the model becomes bf16",
    ),
    ({"to": "f16", "method": "entropy"}, PolicyError, "method: only numbers of 8 bits have ranges"),
    ({"keep": "top1"}, PolicyError, "keep: 'top1' has no '='; write a metric and a loss, top1=0.5%"),
    ({"keep": "top5=1%"}, PolicyError, "keep.metric: 'top5' is not known; legal: top1, error"),
    (
        {"keep": "error=200%"},
        PolicyError,
        "keep.loss: 2.0 is no share; give 0 to 1, or a text such as '0.5 %'",
    ),
    (
        {"keep": {"metric": "top1"}},
        PolicyError,
        "keep: it has a metric and a loss, as in {metric: top1, loss",
    ),
    ({"keep": 3}, PolicyError, "keep: 3 is no goal; give a metric and a loss"),
    ({"labels": [0.5] * 70}, PolicyError, "labels: [0.5, 0.5"),
    ({"labels": [1, 2]}, InputMismatch, "labels: 2 of them, and the samples have 70; give one for each"),
    ({"labels": "nowhere.npy"}, InputMismatch, "cannot read the labels: "),
    (
        {"policy": {"to": "int8", "ops": {"fc9": "f32"}}},
        PolicyError,
        "ops.fc9: no op has this id; did you mean",
    ),
    (
        {"policy": {"to": "int8", "ops": {"fc1": "f32", "fc2": "f32", "fc3": "f32"}}},
        PolicyError,
        "calibrate: no op of the model becomes int8; ",
    ),
]


@pytest.mark.parametrize(("options", "kind", "message"), ARGUMENTS)
def test_errors_name_the_argument(options: dict[str, Any], kind: type[AicfError], message: str):
    with pytest.raises(kind) as error:
        aicf.calibrate(chain(), SAMPLES, weights=WEIGHTS, target=TARGET, **options)
    assert error.value.message.startswith(message) and "\n" not in error.value.message


def test_programs_that_are_no_models():
    exe = aicf.compile(chain(rows=7), WEIGHTS, TARGET)
    for stage in ("emit", "fuse-elementwise"):
        with pytest.raises(PolicyError, match="calibrate: the program has groups or instructions"):
            aicf.calibrate(exe.ir(stage), SAMPLES, weights=WEIGHTS)
    step = aicf.train_step(chain(rows=7), "mse", aicf.optimizers.SGD(0.1), target=TARGET)
    with pytest.raises(PolicyError, match="calibrate: a training step computes as it is written"):
        aicf.calibrate(step.executable.ir("logical"), SAMPLES)
    g = aicf.Graph("counter")
    x, count = g.input("x", (7, 16)), g.state("count", (7, 16))
    g.update(count, count + x)
    g.output(g.linear(count, g.param("w", (4, 16))), "y")
    with pytest.raises(PolicyError, match="calibrate: the program keeps state or has several functions"):
        aicf.calibrate(
            g, SAMPLES, weights={"w": np.ones((4, 16), np.float32), "count": np.zeros((7, 16), np.float32)}
        )


def test_labels_are_needed_of_an_output_that_has_some():
    g = aicf.Graph("scalar")
    g.output(g.linear(g.input("x", (7, 16)), g.param("w", (1, 16)), name="fc"), "y")
    weights = {"w": np.ones((1, 16), np.float32)}
    with pytest.raises(
        PolicyError, match="keep.metric: no output of the model has labels; keep an error, error=1%"
    ):
        aicf.calibrate(g, SAMPLES, weights=weights, target=TARGET, keep="top1=1%")
