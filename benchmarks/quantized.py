"""Quantised ONNX models on the CPU: AICF, ONNX Runtime and OpenVINO on the same QDQ files in the same run, and AICF on
the f32 models that they were made from.

    python benchmarks/quantized.py [--networks resnet18,bert] [--seconds 3] [--output JSON]

One thread each, interleaved, medians. ONNX Runtime's own tool quantises: statically, weights with a scale for each
channel. The errors are those of the results against the f32 model, root mean squares, so that each rival is seen to
compute the same network. Each row has the figure it should reach; none is asserted.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).parent.parent
# Python puts this folder first on its path, where cuda.py would hide the package that PyTorch looks for.
sys.path[0] = str(ROOT / "benchmarks" / "models")
sys.path.insert(1, str(ROOT / "benchmarks" / "host"))

from architectures import Architecture, bert, mobilenet_v2, resnet  # noqa: E402
from model_rivals import RIVALS, Run, aicf_bound  # noqa: E402
from timed_models import TimedModel  # noqa: E402
from timing import interleaved, machine, write_result  # noqa: E402

SLOWEST_RATIO = 0.9
"""Of ONNX Runtime's time."""
LEAST_GAIN = 1.6
"""Times that the f32 model takes longer than the quantised BERT."""
SAMPLES = 8
"""Random inputs for calibration."""
NETWORKS: Mapping[str, Callable[[], Architecture]] = {
    "resnet18": lambda: resnet((2, 2, 2, 2), 64, 224),
    "resnet18 batch 8": lambda: resnet((2, 2, 2, 2), 64, 224, 8),
    "mobilenet_v2": lambda: mobilenet_v2(224),
    "bert 2 x 768": lambda: bert(2, 768, 12, 128),
    "bert 2 x 768 batch 8": lambda: bert(2, 768, 12, 128, 8),
}
Row = dict[str, object]


def main() -> None:
    """Times everything, prints the table and writes the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=",".join(NETWORKS), help="of %(default)s")
    parser.add_argument("--activations", default="u8,i8", help="of %(default)s")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each rival of each row")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "quantized.json")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with threadpool_limits(1):
        for name in arguments.networks.split(","):
            for row in timed(name, arguments.activations.split(","), arguments.seconds):
                rows.append(row)
                print(row, flush=True)
    write_result(arguments.output, {"machine": machine(), "threads": 1, "quantized": rows})
    table = Table(*rows[0], title="quantised networks", title_justify="left")
    for row in rows:
        table.add_row(*(f"{value}" for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def timed(name: str, activations: list[str], seconds: float) -> Iterator[Row]:
    """A row for each type of activations."""
    architecture = NETWORKS[name]()
    feeds = {key: value.numpy() for key, value in architecture.inputs.items()}
    plain = TimedModel(name, architecture.exported(), feeds)
    wide = aicf_bound(plain)
    expected = {key: np.copy(value) for key, value in wide().items()}
    for element in activations:
        model = TimedModel(name, quantized(plain, element), feeds)
        runs: dict[str, Run] = {key: make(model) for key, make in RIVALS.items()}
        errors = {key: relative_error(run(), expected) for key, run in runs.items()}
        times = interleaved({**runs, "f32": wide}, seconds)
        ratio, gain = times["aicf"] / times["onnxruntime"], times["f32"] / times["aicf"]
        yield {
            "network": name,
            "activations": element,
            **{f"{key}_us": round(value, 1) for key, value in times.items()},
            **{f"{key}_error": round(value, 4) for key, value in errors.items()},
            "gain": round(gain, 2),
            "ratio": round(ratio, 3),
            "reach": SLOWEST_RATIO,
            "reached": ratio <= SLOWEST_RATIO and (gain >= LEAST_GAIN or "bert" not in name),
        }


def quantized(model: TimedModel, element: str) -> bytes:
    """The model with quantised products and convolutions, calibrated on random inputs of the same kind."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    logging.disable(logging.WARNING)  # it says for each model that it was not prepared, or that it was

    class Samples(CalibrationDataReader):
        """Some more inputs like those of the model."""

        def __init__(self) -> None:
            generator = np.random.default_rng(0)
            self.samples = iter([_like(model.feeds, generator) for _ in range(SAMPLES)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.samples, None)

    with tempfile.TemporaryDirectory() as folder:
        source, prepared, target = (
            Path(folder) / f"{name}.onnx" for name in ("source", "prepared", "target")
        )
        onnx.save(onnx.load_from_string(model.model), source)
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(target),
            Samples(),
            per_channel=True,
            activation_type={"u8": QuantType.QUInt8, "i8": QuantType.QInt8}[element],
            weight_type=QuantType.QInt8,
        )
        logging.disable(logging.NOTSET)
        return target.read_bytes()


def _like(feeds: Mapping[str, np.ndarray], generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Random arrays of the same types and shapes; integers are the model's own in another order."""
    return {
        name: generator.standard_normal(value.shape).astype(value.dtype)
        if value.dtype.kind == "f"
        else generator.permuted(value, axis=-1)
        for name, value in feeds.items()
    }


def relative_error(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Root mean square of the differences by that of the results."""
    differences = sum(
        float(np.square(found[name] - value, dtype=np.float64).sum()) for name, value in expected.items()
    )
    return float(
        np.sqrt(differences / sum(float(np.square(v, dtype=np.float64).sum()) for v in expected.values()))
    )


if __name__ == "__main__":
    main()
