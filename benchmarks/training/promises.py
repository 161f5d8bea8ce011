"""The targets of the training benchmark, as data, and whether a result meets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from criteria import Criterion, Row

PEERS = ("torch_eager", "torch_fused", "torch_graph", "torch_compile", "torch_compile_fused", "jax")


def best_peer(row: Row) -> float:
    """Microseconds of the fastest peer that was run."""
    times = [us for name, us in row["us"].items() if name in PEERS]
    if not times:
        raise KeyError("no peer was run")
    return min(times)


def _step(row: Row) -> float:
    return row["us"]["aicf"]


def _of_best(row: Row) -> float:
    return row["us"]["aicf"] / best_peer(row)


def _of_eager(row: Row) -> float:
    return row["us"]["aicf"] / row["us"]["torch_eager"]


def _of_compiled(row: Row) -> float:
    return row["us"]["aicf"] / row["us"]["torch_compile"]


def _error(row: Row) -> float:
    """A peer's losses differ from the exact ones as its products and sums round; ours may do so as well."""
    errors = [error for name, error in row["error"].items() if name in PEERS]
    if not errors:
        raise KeyError("no peer was run")
    return row["error"]["aicf"] / max(errors)


def _memory(row: Row) -> float:
    return row["bytes"]["aicf"] / row["bytes"]["torch_eager"]


def _prediction(row: Row) -> float:
    return abs(row["predicted_bytes"]["aicf"] / row["bytes"]["aicf"] - 1)


def _budget(row: Row) -> float:
    return row["bytes"]["aicf_budget"] / row["bytes"]["aicf"]


def _price(row: Row) -> float:
    return row["us"]["aicf_budget"] / row["us"]["aicf"]


PROMISES: Sequence[Criterion] = (
    Criterion("mlp_64", "a step, us", "<=", 45, _step),
    Criterion("mlp_1024", "a step, us", "<=", 90, _step),
    Criterion("encoder", "time relative to the best peer", "<=", 0.7, _of_best),
    Criterion("digits", "time relative to PyTorch eager", "<=", 0.5, _of_eager),
    Criterion("digits", "time relative to torch.compile", "<=", 0.8, _of_compiled),
    Criterion("encoder", "peak memory relative to PyTorch", "<=", 1, _memory),
    Criterion("encoder", "relative error of the predicted memory", "<=", 0.01, _prediction),
    Criterion("encoder", "peak memory with a budget, relative to without", "<=", 0.6, _budget),
    Criterion("encoder", "time with that budget, relative to without", "<=", 1.35, _price),
    *(
        Criterion(row, "error of the losses, relative to the largest of a peer", "<=", 2, _error)
        for row in ("digits", "mlp_64", "mlp_1024", "encoder")
    ),
)


def evaluated(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """All promises on the rows of a result."""
    by_name = {row["name"]: row for row in rows}
    return [promise.evaluated(by_name) for promise in PROMISES]
