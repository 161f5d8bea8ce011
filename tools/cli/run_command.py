"""`aicf run`: one call of an artifact, from .npy files to .npy files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from aicf.errors import ArtifactError, InputMismatch
from aicf.files import write_whole
from aicf.runtime.tensors import Array, describe_array


def run_command(
    model: Annotated[
        Path, typer.Argument(metavar="ARTIFACT", help="What `aicf compile` wrote.", show_default=False)
    ],
    input: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=FILE.npy", help="An array; once for each input.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            help="Folder for one NAME.npy for each output, and for each parameter or state that the call updated."
        ),
    ] = Path("."),
) -> None:
    """Run an artifact once on .npy files."""
    from aicf.compiled import load

    compiled = load(model)
    results = compiled.run(read_inputs(input or []))
    for name, array in {**results, **compiled.state()}.items():
        path = write_array(output, name, array)
        print(f"{path}: {describe_array(array)}")


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


def write_array(folder: Path, name: str, array: Array) -> Path:
    """Writes `folder/name.npy`, whole or not at all, and makes the folder.

    Raises:
        ArtifactError: it cannot be written.
    """
    path = folder / f"{name}.npy"
    if Path(name).name != name:
        raise ArtifactError(f"output '{name}' is no file name; call the executable from Python for it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda stream: np.save(stream, array, allow_pickle=False))
    except OSError as error:
        raise ArtifactError(
            f"cannot write the output: {error.strerror}; choose a folder that can be written",
            location=str(path),
        ) from error
    return path
