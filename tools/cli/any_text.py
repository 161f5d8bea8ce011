"""Printing and reading what is no text: bytes of other encodings, in names of files or in lines of input, are lone
surrogates in a program."""

from __future__ import annotations

import io
import sys
from typing import Any, cast


def print_any_text() -> None:
    """From now on stdout shows as an escape what its encoding lacks, as stderr does, instead of raising."""
    stream: object = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper[Any]", stream).reconfigure(errors="backslashreplace")


def read_any_text() -> None:
    """From now on bytes of stdin that are not of its encoding are read as lone surrogates, instead of raising."""
    stream: object = sys.stdin
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper[Any]", stream).reconfigure(errors="surrogateescape")
