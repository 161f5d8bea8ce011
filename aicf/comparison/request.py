"""What a comparison was asked for, and what each process is told. All of it can be pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aicf.runtime.tensors import Array

EXACT, NONE = "exact", "none"
"""Names of references that are no engines: AICF's semantics in float64, and no comparison of outputs."""

CHECKED_REFERENCES = (EXACT, NONE)


@dataclass(frozen=True)
class CompareRequest:
    """See `compare`.

    Args:
        model: Path of an ONNX file.
        engines: Names, in the order of the table.
        sizes: Of all symbolic dimensions.
        feeds: Inputs by name, made for these sizes.
        values: Names of inputs whose values AICF compiles for.
        device: Of every engine; None is its own default.
        threads: Of every engine that follows it.
        cache_dir: Folder of plans, of every engine that keeps any.
        repeats: Runs that are timed.
        reference: `exact`, the name of an engine of the comparison, or `none`.
    """

    model: Path
    engines: tuple[str, ...]
    sizes: Mapping[str, int]
    feeds: Mapping[str, Array]
    values: tuple[str, ...]
    device: str | None
    threads: int
    cache_dir: Path | None
    repeats: int
    reference: str
