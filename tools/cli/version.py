"""`aicf --version`."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer


def print_version(requested: bool) -> None:
    """Prints the version and ends the command, if it was asked for: a callback of Typer."""
    if requested:
        print(f"aicf {_version()}")
        raise typer.Exit


def _version() -> str:
    """Of the installed package, or of the checkout that is run without."""
    try:
        return version("aicf")
    except PackageNotFoundError:
        project = Path(__file__).resolve().parents[2] / "pyproject.toml"
        return tomllib.loads(project.read_text("utf-8"))["project"]["version"]
