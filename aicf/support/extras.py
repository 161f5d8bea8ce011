"""How to get an optional part of AICF: the text that an error gives as its way out. It looks for no package."""

from __future__ import annotations

from pathlib import Path


def install(extra: str) -> str:
    """The command that installs `extra`: into a checkout where this is one, else from the package index."""
    checkout = Path(__file__).parents[1]
    where = f"-e '{checkout}[{extra}]'" if (checkout / "pyproject.toml").is_file() else f"'aicf[{extra}]'"
    return f"pip install {where}"
