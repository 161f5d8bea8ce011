"""Where passes are: a pass registers by being there, in a folder that says what its passes do.

The file ``some_pass.py``, in a folder of ``passes`` or below one, holds the one ``ModulePass`` named ``some-pass``.
Files are read as text: to import them all would take longer than most commands. To explain an artifact loads neither
passes nor xDSL.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import aicf.passes


@cache
def pass_modules() -> dict[str, str]:
    """Name of each pass to its module: the files below the folder of passes that define a pass of their own name."""
    found: dict[str, str] = {}
    for folder in aicf.passes.__path__:
        for path in sorted(Path(folder).glob("*/**/*.py")):
            name = path.stem.replace("_", "-")
            if f'\n    name = "{name}"\n' in path.read_text("utf-8"):
                found[name] = ".".join(("aicf.passes", *path.relative_to(folder).with_suffix("").parts))
    return found


@cache
def passes_in(folder: str) -> frozenset[str]:
    """The names of the passes in a folder of passes."""
    return frozenset(
        name for name, module in pass_modules().items() if module.startswith(f"aicf.passes.{folder}.")
    )
