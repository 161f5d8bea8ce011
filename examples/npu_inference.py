"""An ONNX model on an NPU: the engine that has one, plans for fixed sizes, kept on disk, and answers that are checked.

    python npu_inference.py [--engine NAME --device NAME] [FOLDER]

Without options it takes the first NPU that an engine finds here, and otherwise says what each engine is missing. With
`--engine openvino --device cpu` or `--engine qnn --device simulator` it shows the same without an NPU. The folder, by
default examples/build, keeps the model and the plans.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from inference_basic import FOLDER, batch, expected, write_model

import aicf
from aicf.engines.registry import engine_names, get_engine

BATCHES = [1, 32]
RUNS = 200
TOLERANCE = 5e-3
"""Of probabilities: NPUs compute in f16."""


def main(engine: str | None, device: str | None, folder: Path) -> None:
    """Opens a session twice, the second time from the plans on disk, and calls it."""
    if engine is None or device is None:
        engine, device = find_npu()
    model = write_model(folder / "classifier.onnx")
    for _ in range(2):
        started = time.perf_counter()
        with aicf.InferenceSession(
            model,
            engine=engine,
            device=device,
            dims={"batch": BATCHES},  # an NPU has plans for fixed sizes: these are made now
            exec_policy={"new_shapes": "refuse"},  # and no call waits for another one
            cache_dir=folder / "plans",
        ) as session:
            print(
                f"ready in {time.perf_counter() - started:.2f} s: {len(session.report.of('loaded'))} plans from disk"
            )
            call(session)
            print(session.engine)


def find_npu() -> tuple[str, str]:
    """The first engine with an NPU, and the engine's name for it. If none has one it says what each has, and exits."""
    for name in engine_names():
        found = get_engine(name).availability()
        for device in found.devices:
            if "npu" in device.lower():
                return name, device
        has = f"its devices are {', '.join(found.devices)}" if found.is_available else str(found)
        print(f"{name}: {has}")
    raise SystemExit("no engine finds an NPU here; --engine and --device choose another device")


def call(session: aicf.InferenceSession) -> None:
    """Answers on fresh memory and on bound memory, and one that is refused."""
    for count in BATCHES:
        x, y = batch(count), np.empty((count, 10), np.float32)
        error = np.abs(session.run({"x": x})["probabilities"] - expected(x)).max()
        binding = session.bind(x=x, probabilities=y)
        binding.run()
        started = time.perf_counter()
        binding.run(RUNS)
        microseconds = (time.perf_counter() - started) / RUNS * 1e6
        assert error < TOLERANCE
        np.testing.assert_allclose(y, expected(x), atol=TOLERANCE)
        print(f"{count} rows: {microseconds:.1f} us a run, right to {error:.1e}")
    try:
        session.run({"x": batch(5)})
    except aicf.InputMismatch as refused:
        print(refused)
    else:
        raise AssertionError("five rows have no plan")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serves a model on an NPU.")
    parser.add_argument("--engine")
    parser.add_argument("--device")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    given = parser.parse_args()
    main(given.engine, given.device, given.folder)
