"""Printing names that are no text: file names of other encodings reach a program as lone surrogates."""

from __future__ import annotations

import io
import sys
from typing import Any, cast


def print_any_text() -> None:
    """From now on stdout shows as an escape what its encoding lacks, as stderr does, instead of raising."""
    stream: object = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        cast("io.TextIOWrapper[Any]", stream).reconfigure(errors="backslashreplace")
