"""The call of a `cuda.cublaslt` record as plain values: what the runtime captures, and what the heuristic is queried
with. No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FUNCTION = "cublasLt.matmul"
_COPIED = (
    "dtype",
    "compute_type",
    "scale_type",
    "reduction",
    "alpha",
    "beta",
    "bias_type",
    "transpose",
    "matrices",
    "batch",
    "epilogue",
    "alignment",
    "algorithm",
    "workspace_bytes",
)
"""Entries of the record that are the call."""


def call_values(record: Mapping[str, object], operands: Sequence[str]) -> dict[str, object]:
    """The call of a record, whose addresses are those of `operands`."""
    return {**{name: record[name] for name in _COPIED}, "operands": list(operands)}
