"""`aicf run`: one call of an artifact, or of a model, from .npy files to .npy files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from aicf.errors import ArtifactError, InputMismatch, PolicyError
from aicf.runtime.tensors import Array, describe_array
from aicf.support.files import write_whole
from aicf.tools.cli.arguments import ArtifactOrModel, Policy, Training, Weights, is_model


def run_command(
    model: ArtifactOrModel,
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=FILE.npy", help="An array; once for each input.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            help="Folder for one NAME.npy for each output, and for each parameter or state that the call updated; a / "
            "of a name is a _ of its file."
        ),
    ] = Path("."),
    weights: Weights = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Of a model: cpu, cuda or reference, or a name of the engine's.", show_default=False
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Of a model: aicf, auto, or another of `aicf engines`.", show_default=False),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Of a model: folder of compiled programs.", show_default=False)
    ] = None,
    policy: Policy = None,
    training: Training = False,
) -> None:
    """Run an artifact, or a model of the sizes of the inputs, once on .npy files."""
    inputs = read_inputs(input or [])
    given = {"device": device, "engine": engine, "cache_dir": cache, "policy": policy, "training": training}
    results = _run(model, weights, inputs, given)
    for stem, array in zip(file_stems(list(results)), results.values(), strict=True):
        path = write_array(output, stem, array)
        print(f"{path}: {describe_array(array)}")


def _run(
    path: Path, weights: Path | None, inputs: Mapping[str, Array], options: Mapping[str, Any]
) -> dict[str, Array]:
    """The outputs, and what the call updated; of a model by a session, which picks sizes by the inputs.

    Args:
        options: Of a session; an artifact takes none.
    """
    if is_model(path):
        from aicf.inference import InferenceSession

        with InferenceSession(path, weights, **options) as session:
            return {**session.run(inputs), **session.state()}
    from aicf.compilation.reading import load

    for name, value in options.items():
        if value not in (None, False):
            option = name.removesuffix("_dir")
            raise PolicyError(f"--{option} has no effect on an artifact, which is compiled; leave it out")
    compiled = load(path, weights=weights)
    return {**compiled.run(inputs), **compiled.state()}


def read_inputs(pairs: Sequence[str]) -> dict[str, Array]:
    """The arrays of `NAME=FILE.npy` pairs.

    Raises:
        InputMismatch: a pair is malformed or repeated, or its file cannot be read.
    """
    arrays: dict[str, Array] = {}
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not name or not equals or not file:
            raise InputMismatch(f"--input '{pair}': write NAME=FILE.npy, as in --input x=x.npy")
        if name in arrays:
            raise InputMismatch(f"--input '{name}' is given twice; give it once")
        arrays[name] = _read_array(Path(file))
    return arrays


def _read_array(path: Path) -> Array:
    try:
        with path.open("rb") as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)
    except OSError as error:
        raise InputMismatch(
            f"cannot read the input: {error.strerror}; check the path", location=str(path)
        ) from error
    except (ValueError, EOFError, KeyError, SyntaxError, UnicodeError) as error:
        raise InputMismatch(f"no .npy file: {error}; write it with numpy.save", location=str(path)) from error


def file_stems(names: Sequence[str]) -> list[str]:
    """Names of files for arrays of these names: `_` stands for what cannot be in one, such as the / of ONNX.

    Raises:
        ArtifactError: two would be the same file, or a name is none of a file at all.
    """
    taken: dict[str, str] = {}
    for name in names:
        stem = name.replace("/", "_").replace("\0", "_")
        if stem in ("", ".", ".."):
            raise ArtifactError(f"output '{name}' is no file name; call the executable from Python for it")
        if stem in taken:
            raise ArtifactError(
                f"outputs '{taken[stem]}' and '{name}' would both be {stem}.npy; call the executable from Python"
            )
        taken[stem] = name
    return list(taken)


def write_array(folder: Path, name: str, array: Array) -> Path:
    """Writes `folder/name.npy`, whole or not at all, and makes the folder.

    Raises:
        ArtifactError: it cannot be written.
    """
    path = folder / f"{name}.npy"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda stream: np.save(stream, array, allow_pickle=False))
    except OSError as error:
        raise ArtifactError(
            f"cannot write the output: {error.strerror}; choose a folder that can be written",
            location=str(path),
        ) from error
    return path
