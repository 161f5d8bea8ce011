"""The targets of the GPU benchmark, as data, and whether a result meets them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

Row = Mapping[str, Any]
PEERS = ("torch_eager", "torch_graph", "torch_compile", "jax")
MOST_NODES = 100
"""Host time is promised for graphs of so many nodes."""


@dataclass(frozen=True)
class Criterion:
    """One promise about one row.

    Args:
        row: Name of the program.
        what: What is measured, in words.
        relation: How it is compared with `reach`.
        measure: The figure in a row of the result; KeyError if the row has it not.
    """

    row: str
    what: str
    relation: Literal["<=", ">="]
    reach: float
    measure: Callable[[Row], float]

    def evaluated(self, rows: Mapping[str, Row]) -> dict[str, Any]:
        """The promise, the figure and whether it is kept; None for both where nothing was measured."""
        try:
            measured = self.measure(rows[self.row])
        except KeyError:
            measured = None
        reached = None if measured is None else self._holds(measured)
        return {
            "row": self.row,
            "what": self.what,
            "reach": f"{self.relation} {self.reach:g}",
            "measured": None if measured is None else round(measured, 3),
            "reached": reached,
        }

    def _holds(self, measured: float) -> bool:
        return measured <= self.reach if self.relation == "<=" else measured >= self.reach


def best_peer(row: Row) -> float:
    """Microseconds of the fastest peer that was run."""
    times = [us for name, us in row["us"].items() if name in PEERS]
    if not times:
        raise KeyError("no peer was run")
    return min(times)


def _replay(row: Row) -> float:
    return row["us"]["aicf"]


def _of_peer(row: Row) -> float:
    return best_peer(row) / row["us"]["aicf"]


def _of_compiled(row: Row) -> float:
    return row["us"]["aicf"] / row["us"]["torch_compile"]


def _of_library(row: Row) -> float:
    """Of cublasLt as PyTorch captures it: our own call of it copies what callers bind to where it reads."""
    return min(row["us"]["cublaslt"], row["us"]["torch_graph"]) / row["us"]["wgmma"]


def _of_copy(row: Row) -> float:
    return row["us"]["copy"] / row["us"]["aicf"]


def _host(row: Row) -> float:
    if row["nodes"] > MOST_NODES:
        raise KeyError("more nodes than the promise is for")
    return row["host_us"]["aicf"]


def _cold(row: Row) -> float:
    return median(row["cold"]["seconds"])


_REPLAYS = {"mlp_chain": 60, "bert_1x128": 300, "bert_8x128": 800, "gemm_bias_relu_4096": 176}
_PRODUCTS = ("gemm_4096", "gemm_8192")
_STREAMS = ("pointwise_256MB", "softmax_256MB", "layer_norm_256MB")
_ATTENTION = ("attention_512", "attention_512_causal")
_DECODERS = ("gpt2_block", "gpt2_12_blocks")
_MOVES = (
    *("gather_256MB", "scatter_set_256MB", "scatter_add_256MB", "topk_256MB", "topk_long_256MB"),
    *("cumsum_256MB", "cumsum_long_256MB", "pad_256MB"),
)
_ALL = (*_REPLAYS, *_PRODUCTS, "swiglu_2048", *_STREAMS, *_ATTENTION, *_DECODERS, *_MOVES)

CRITERIA: Sequence[Criterion] = (
    *(Criterion(row, "replay, us", "<=", us, _replay) for row, us in _REPLAYS.items()),
    *(
        Criterion(row, "own wgmma kernel, speed relative to cublasLt", ">=", 0.95, _of_library)
        for row in _PRODUCTS
    ),
    Criterion("swiglu_2048", "speed relative to the best peer", ">=", 1.2, _of_peer),
    *(Criterion(row, "speed relative to a device copy", ">=", 0.9, _of_copy) for row in _STREAMS),
    Criterion("gpt2_block", "time relative to torch.compile", "<=", 0.5, _of_compiled),
    *(Criterion(row, "speed relative to the best peer", ">=", 1, _of_peer) for row in (*_ATTENTION, *_MOVES)),
    *(Criterion(row, "host time of one replay, us", "<=", 6, _host) for row in _ALL),
    Criterion("bert_1x128", "cold compile with a tuning table, s", "<=", 10, _cold),
)
"""Times are of replays back to back."""


def evaluated(rows: Sequence[Row], cold: Mapping[str, Row]) -> list[dict[str, Any]]:
    """All criteria on the rows of a result and its cold compiles by row."""
    by_name = {row["name"]: dict(row) for row in rows}
    for name, entry in cold.items():
        by_name.setdefault(name, {})["cold"] = entry
    return [criterion.evaluated(by_name) for criterion in CRITERIA]
