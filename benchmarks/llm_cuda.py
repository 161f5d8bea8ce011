"""Language models on a GPU in the shapes of Llama, with random weights in bf16: the time of a token and of a prompt.

    python benchmarks/llm_cuda.py 1B [--context 256] [--prompt 32] [--tokens 128] [--output JSON]
    python benchmarks/llm_cuda.py 8B --context 4096 --prompt 2048

A token is one replay, which takes the token that the last one chose; the host waits for the last of them alone. What a
token reads is its weights, and the cache up to the mean position. A prompt is one run of a program of its size. Times
are medians of rounds, in microseconds.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)

import aicf  # noqa: E402
from aicf.llm.families.llama import Llama  # noqa: E402
from aicf.llm.loading import parameters_of  # noqa: E402
from aicf.llm.sampling import Sampling  # noqa: E402
from aicf.llm.sources.base import Source  # noqa: E402
from aicf.llm.sources.folder import FolderSource  # noqa: E402
from aicf.llm.token_state import COUNT, START, TOKENS  # noqa: E402
from aicf.runtime.graph_exec import GraphExec  # noqa: E402
from aicf.runtime.tensors import Array  # noqa: E402

COMMON: Mapping[str, Any] = {
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "1B": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "tie_word_embeddings": True,
    },
    "8B": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "head_dim": 128,
        "tie_word_embeddings": False,
    },
}
_DRAWN = 1 << 22
"""Numbers that are drawn; weights repeat them."""


class Shapes(FolderSource):
    """Settings without tensors."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        Source.__init__(self, Path("shapes"), config["model_type"])
        self._config = config

    def has(self, name: str) -> bool:
        return False

    def shape(self, name: str) -> tuple[int, ...]:
        return self._config["vocab_size"], self._config["hidden_size"]


def random_weights(family: Llama, graph: Any) -> dict[str, Array]:
    """Random weights by which what layers pass on keeps its size."""
    drawn = np.random.default_rng(0).standard_normal(_DRAWN, np.float32)
    found: dict[str, Array] = {}
    for name, info in parameters_of(graph).items():
        scale = 1.0 if info.rank == 1 else info.shape[-1] ** -0.5
        found[name] = np.resize((drawn * scale).astype(info.element.dtype), info.shape)
    return found


def _timed_us(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e6


def main(
    shape: Annotated[str, typer.Argument(help="1B or 8B.")],
    context: Annotated[int, typer.Option(help="Positions of the cache.")] = 256,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 32,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of the answer.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 9,
    target: Annotated[str, typer.Option(help="Of the programs.")] = "cuda",
    output: Annotated[Path | None, typer.Option(help="Result as JSON.")] = None,
) -> None:
    """Prints what a token and a prompt take, as JSON."""
    if shape not in SHAPES:
        raise typer.BadParameter(f"shape is {shape}; there are {', '.join(SHAPES)}")
    if prompt + tokens > context:
        raise typer.BadParameter(
            f"{prompt} + {tokens} tokens are more than the {context} positions of the cache"
        )
    family = Llama(Shapes({**COMMON, **SHAPES[shape]}))
    graph = family.decoder("llama", context, "bf16")
    weights = {**random_weights(family, graph), **family.states(context, "bf16")}
    executable = aicf.compile(graph, weights, target, dims={"T": sorted({1, prompt})})
    ids = np.random.default_rng(1).integers(0, family.vocabulary, prompt)

    def step(size: int) -> GraphExec:
        found = executable.attach(T=size)
        found.fill({**Sampling().feeds(), TOKENS: np.resize(ids, size)})
        return found

    first, following = step(prompt), step(1)

    def read() -> None:
        first.fill({START: np.array([0]), COUNT: np.array([prompt])})
        first.replay()
        first.synchronize()

    def answer() -> None:
        following.replay(tokens)
        following.synchronize()

    times: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        prompt_time = _timed_us(read)
        following.fill({START: np.array([-1]), COUNT: np.array([0])})
        times.append((prompt_time, _timed_us(answer) / tokens))
    # The first run of each goes instruction by instruction.
    prompt_us, token_us = (statistics.median(each) for each in zip(*times[1:], strict=True))
    parameters = sum(each.nbytes for name, each in weights.items() if name.endswith("weight"))
    embedding = 0 if family.is_tied else weights["token_embd.weight"].nbytes
    position = 2 * family.layers * family.kv_heads * family.head_width * 2
    read_bytes = parameters - embedding + position * (prompt + tokens // 2)
    result = {
        "shape": shape,
        "context": context,
        "prompt": prompt,
        "tokens": tokens,
        "token_us": round(token_us, 1),
        "token_bytes": read_bytes,
        "token_gbs": round(read_bytes / token_us / 1e3, 1),
        "prompt_us": round(prompt_us, 1),
        "prompt_tokens_a_second": round(prompt / prompt_us * 1e6),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if output is not None:
        output.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
