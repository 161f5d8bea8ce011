"""`aicf compile`: a model to an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aicf.tools.cli.outputs import check_output


def compile_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The model, an .mlir file.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Artifact to write, as in model.aicf.", show_default=False)
    ],
    weights: Annotated[
        Path | None, typer.Option(help="Weights, a .safetensors file.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Such as cpu or cpu:x86-64-v3; this machine's cpu by default.", show_default=False),
    ] = None,
    dims: Annotated[
        str, typer.Option(help="Sizes of symbolic dimensions, as in 'N=1,540;M=4'.", show_default=False)
    ] = "",
    policy: Annotated[
        str | None,
        typer.Option(help="'auto', inline JSON, or a .json or .yaml file.", show_default=False),
    ] = None,
    tuning: Annotated[
        Path | None,
        typer.Option(help="Measured times, a file that `aicf tune` wrote.", show_default=False),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads that run the program together.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Name of the model; the file's by default.", show_default=False)
    ] = None,
) -> None:
    """Compile a model into an artifact that loads without a compiler."""
    from aicf.compiler import compile

    check_output(output, "the artifact")
    compiled = compile(
        model, weights, target, dims=dims, policy=policy, tuning=tuning, threads=threads, name=name
    )
    compiled.save(output)
    print(f"{output}: {compiled.summary()}")
