"""The figures of a result of the training benchmark as the tables that docs/training.md has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from promises import PEERS

START = "<!-- benchmark tables: made by benchmarks/train.py table -->"
END = "<!-- end of benchmark tables -->"

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
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page has no place for the tables: a line '{START}' and a line '{END}'")
    return before + tables(result) + after


def tables(result: Mapping[str, Any]) -> str:
    """All tables, between the marks; without those that nothing was measured for."""
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    sections = {
        'Microseconds of a step; "-" was not run:': _by_rival(rows, "us", _us),
        "The largest distance of a loss from float64's in the first 20 steps, over the mean loss:": _by_rival(
            rows, "error", lambda error: f"{error:.1e}"
        ),
        "Megabytes requested from the driver:": _by_rival(rows, "bytes", lambda size: f"{size / 1e6:.1f}"),
        "What was to be reached:": _promises(result["promises"]),
    }
    filled = (part for title, table in sections.items() if table for part in (title, table))
    return "\n\n".join([START, *filled, END])


def _us(us: float) -> str:
    return f"{us:.1f}" if us < 100 else f"{us:,.0f}"


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
    return _table(["work", *(NAMES[name] for name in rivals)], body)


def _promises(promises: Sequence[Mapping[str, Any]]) -> str:
    body = [
        [
            WORKS[found["row"]],
            found["what"],
            found["reach"],
            "not measured" if found["measured"] is None else f"{found['measured']:g}",
            {True: "yes", False: "**no**", None: "-"}[found["reached"]],
        ]
        for found in promises
    ]
    return _table(["work", "what", "to reach", "measured", "reached"], body)


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
