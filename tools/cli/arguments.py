"""Arguments and options that several commands have, each described once."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model, an .mlir, .onnx or .pt2 file.", show_default=False)
]
ArtifactOrModel = Annotated[
    Path,
    typer.Argument(
        metavar="ARTIFACT|MODEL",
        help="What `aicf compile` wrote, or an .onnx, .pt2 or .mlir file.",
        show_default=False,
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="Artifact to write, as in model.aicf.", show_default=False)
]
Weights = Annotated[Path | None, typer.Option(help="Weights, a .safetensors file.", show_default=False)]
Target = Annotated[
    str | None,
    typer.Option(help="Such as cpu or cpu:x86-64-v3; this machine's cpu by default.", show_default=False),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=SIZE,...",
        help="Sizes of symbolic dimensions, as in N=1,540 or N=1,540,M=4. Given more than once, they add up.",
        show_default=False,
    ),
]
Values = Annotated[
    str,
    typer.Option(
        help="Inputs of an ONNX model that shapes follow from, and their values, as in '{\"shape\": [2, 3]}'.",
        show_default=False,
    ),
]
Policy = Annotated[
    str | None,
    typer.Option(help="'auto', inline JSON, or a .json or .yaml file.", show_default=False),
]
Tuning = Annotated[
    Path | None, typer.Option(help="Measured times, a file that `aicf tune` wrote.", show_default=False)
]
Threads = Annotated[int, typer.Option(help="Threads that run the program together.")]


class MetaManager(Enum):
    """Values of `--meta`."""

    DEVICE = "device"
    HOST = "host"


Meta = Annotated[
    MetaManager | None,
    typer.Option(
        help="Who computes the counters and rates of a training step: the program, by default, or the executable "
        "before each run.",
        show_default=False,
    ),
]
CheckFinite = Annotated[
    bool,
    typer.Option(
        "--check-finite", help="A training step whose loss or gradients are not all finite changes nothing."
    ),
]
MemoryBudget = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="BYTES",
        help="What the arena of a training step may take; above it, what the backward part reads is computed again. 0 "
        "sets no bound.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="An ONNX model that declares wrong types or shapes of its values is an error."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Training = Annotated[
    bool,
    typer.Option(
        "--training", help="Dropouts and batch norms do what they do in training; by default, in evaluation."
    ),
]
Name = Annotated[
    str | None, typer.Option(help="Name of the model; the file's by default.", show_default=False)
]


def joined_dims(dims: Sequence[str] | None) -> str:
    """What `--dims` said, each time that it was given, as one text. Raises PolicyError if one cannot be read."""
    if dims is None or len(dims) <= 1:
        return "".join(dims or ())
    from aicf.passes.logical.specialize_shapes import parse_dims

    sizes: dict[str, list[int]] = {}
    for text in dims:
        for name, values in parse_dims(text).items():
            sizes.setdefault(name, []).extend(values)
    return ";".join(f"{name}={','.join(map(str, values))}" for name, values in sizes.items())


def is_model(path: Path) -> bool:
    """Whether a file is a model that is not compiled yet, by its name."""
    return path.suffix in (".onnx", ".pt2", ".mlir")
