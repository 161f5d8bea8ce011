"""The ONNX models that the CPU benchmark times: exported architectures with random weights, and models of packages with
their own, each with one input of a real size.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "examples" / "models"))


@dataclass(frozen=True)
class TimedModel:
    """A model and what it is run on.

    Attributes:
        model: The ONNX file.
        feeds: Inputs by name.
        values: Inputs that AICF is given when it compiles, of `feeds`.
    """

    name: str
    model: bytes
    feeds: Mapping[str, np.ndarray]
    values: tuple[str, ...] = ()

    def dims(self) -> dict[str, int]:
        """Sizes of the dimensions that the file leaves open, by the names that AICF gives them: letters, digits and
        underscores of the file's, or `input_axis` where it has none."""
        found: dict[str, int] = {}
        for value in onnx.load_from_string(self.model).graph.input:
            if value.name not in self.feeds:
                continue
            shape = self.feeds[value.name].shape
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if dim.dim_value <= 0:
                    named = dim.dim_param not in ("", "?")
                    found[re.sub(r"\W", "_", dim.dim_param) if named else f"{value.name}_{axis}"] = shape[
                        axis
                    ]
        return found

    def options(self) -> dict[str, Any]:
        """What `aicf.compile` is told beside the model."""
        return {"dims": self.dims(), "values": {name: self.feeds[name] for name in self.values}}


def _exported(name: str) -> TimedModel:
    from architectures import TIMED, make

    made = make(name, TIMED)
    return TimedModel(name, made.exported(), {key: value.numpy() for key, value in made.inputs.items()})


def _magika() -> TimedModel:
    """The first and the last kilobyte of a file."""
    page = (ROOT / "README.md").read_bytes()
    data = np.frombuffer(page[:1024] + page[-1024:], np.uint8).astype(np.int32)
    return TimedModel("magika", _packaged("magika", "models/standard_v3_3/model.onnx"), {"bytes": data[None]})


def _silero() -> TimedModel:
    """One frame of speech."""
    from voice import RATE, speak

    feeds = {
        "input": speak("aeiou")[0][None, 4096 : 4096 + 576],
        "state": np.random.default_rng(0).standard_normal((2, 1, 128)).astype(np.float32),
        "sr": np.array(RATE),
    }
    return TimedModel("silero", _packaged("silero_vad", "data/silero_vad_op18_ifless.onnx"), feeds, ("sr",))


def _recognizer() -> TimedModel:
    """One line of text of PP-OCR's usual size."""
    image = np.random.default_rng(0).uniform(-1, 1, (1, 3, 48, 320)).astype(np.float32)
    return TimedModel(
        "PP-OCR rec", _packaged("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"), {"x": image}
    )


def _packaged(package: str, path: str) -> bytes:
    """A file of a package, which is not imported for it."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / path).read_bytes()


TIMED_MODELS: Mapping[str, Callable[[], TimedModel]] = {
    "resnet18": partial(_exported, "resnet18 @64"),
    "vit-tiny": partial(_exported, "vit-tiny @64"),
    "bert-tiny": partial(_exported, "bert-tiny"),
    "magika": _magika,
    "silero": _silero,
    "ppocr-rec": _recognizer,
}
"""By the name on the command line."""
