"""What a compiler of others says when it fails, as one line: the line that says why."""

from __future__ import annotations

import re

_PREAMBLES = ("Failed in ", "ERROR_")
"""Starts of lines in which Numba and nvJitLink say where they failed, before they say why."""
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
"""Of a terminal: Numba colours its messages where colorama is installed."""


def telling_line(message: str) -> str:
    """The first line of an error that says why."""
    lines = [line.strip() for line in _COLOUR.sub("", message).splitlines() if line.strip()]
    if (of_source := next((line for line in lines if " error: " in line), None)) is not None:
        return of_source  # of NVRTC, after a heading and warnings
    return next((line for line in lines if not line.startswith(_PREAMBLES)), lines[0] if lines else "")
