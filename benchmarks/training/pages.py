"""The tables of docs/training.md from the JSON result of the training benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from page_tables import END, aims, between_marks, microseconds, sections, table
from promises import PEERS

__all__ = ["END", "NAMES", "START", "WORKS", "tables", "with_tables"]

START = "<!-- benchmark tables: made by benchmarks/train.py table -->"

WORKS = {
    "digits": "digits MLP 64-128-64-10, Adam, f32, batch 64, one CPU thread",
    "mlp_64": "MLP 784-512-512-10, Adam, f32 with TF32, batch 64",
    "mlp_1024": "the same, batch 1024",
    "encoder": "two-layer encoder (d 256, seq 128, batch 32), AdamW, bf16 with f32 master weights",
}
NAMES = {
    "aicf": "AICF",
    "aicf_budget": "AICF, 60 % of its memory",
    "torch_eager": "PyTorch",
    "torch_fused": "with the fused optimizer",
    "torch_graph": "in a CUDA Graph",
    "torch_compile": "torch.compile, max-autotune",
    "torch_compile_fused": "with the fused optimizer",
    "jax": "JAX",
}


def with_tables(page: str, result: Mapping[str, Any]) -> str:
    """The page with the tables of a result between its marks. ValueError if it has none."""
    return between_marks(page, START, tables(result))


def tables(result: Mapping[str, Any]) -> str:
    """All tables that have a measurement, between the marks."""
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    made = {
        'Microseconds of a step; "-" was not run:': _by_rival(rows, "us", microseconds),
        "Largest deviation of a loss from float64 in the first 20 steps, relative to the mean loss:": _by_rival(
            rows, "error", lambda error: f"{error:.1e}"
        ),
        "Megabytes requested from the driver:": _by_rival(rows, "bytes", lambda size: f"{size / 1e6:.1f}"),
        "Targets:": aims("work", WORKS, result["promises"]),
    }
    return sections(START, made)


def _by_rival(rows: Sequence[Mapping[str, Any]], field: str, said: Any) -> str:
    """A figure by work and rival, of the rows that have it and the rivals that have one; "" if none has."""
    having = [row for row in rows if row.get(field)]
    if not having:
        return ""
    rivals = [name for name in ("aicf", "aicf_budget", *PEERS) if any(name in row[field] for row in having)]
    body = [
        [WORKS[row["name"]], *(said(row[field][name]) if name in row[field] else "-" for name in rivals)]
        for row in having
    ]
    return table(["work", *(NAMES[name] for name in rivals)], body)
