"""Language models on a GPU in the shapes of Llama, with random weights: the time of a token and of a prompt.

    python benchmarks/llm_cuda.py 1B [--context 256] [--prompt 32] [--tokens 128] [--weights bf16] [--output JSON]
    python benchmarks/llm_cuda.py 1B --weights int4
    python benchmarks/llm_cuda.py 8B --context 4096 --prompt 2048
    python benchmarks/llm_cuda.py 1B --weights fp8 --target cuda:sm_90a --compile-only

Activations and the cache are bf16. Matrices are too, or they stay packed: `int4` is Q4_0, codes of 4 bits with a scale
of f16 for each 32; `fp8` is f8E4M3FN with a scale of f32 for each 128, as a scale for each channel is stored.

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
from types import MappingProxyType
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import typer

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)

import aicf  # noqa: E402
from aicf.dialects.block_schemes import BLOCK_SCHEMES, Scheme  # noqa: E402
from aicf.llm.families.llama import Llama  # noqa: E402
from aicf.llm.loading import parameters_of  # noqa: E402
from aicf.llm.packed_weights import keep_packed  # noqa: E402
from aicf.llm.quantizing.encoding import ENCODED, encode  # noqa: E402
from aicf.llm.sampling import Sampling  # noqa: E402
from aicf.llm.sources.base import Source  # noqa: E402
from aicf.llm.sources.folder import FolderSource  # noqa: E402
from aicf.llm.sources.quantised.blocks import BlockLayout  # noqa: E402
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
PACKED: Mapping[str, str] = {"int4": "Q4_0", "fp8": "E4M3_128"}
"""Schemes of packed matrices."""
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


def random_weights(graph: Any, schemes: Mapping[str, Scheme] = MappingProxyType({})) -> dict[str, Array]:
    """Random weights by which what layers pass on keeps its size; those of `schemes` packed."""
    drawn = np.random.default_rng(0).standard_normal(_DRAWN, np.float32)
    found: dict[str, Array] = {}
    for name, info in parameters_of(graph).items():
        scale = 1.0 if info.rank == 1 else info.shape[-1] ** -0.5
        if name in schemes:
            found[name] = _packed(schemes[name], info.shape, drawn * scale)
        else:
            found[name] = np.resize((drawn * scale).astype(info.element.dtype), info.shape)
    return found


def _packed(scheme: Scheme, shape: tuple[int, ...], drawn: Array) -> Array:
    """Rows of blocks of a matrix: u8[rows, bytes of a row]."""
    rows, columns = shape
    if scheme.name in ENCODED:
        blocks = encode(scheme, drawn.reshape(-1, scheme.length))
    else:
        codes = (drawn * 64).astype(ml_dtypes.float8_e4m3fn)  # the largest number drawn is far from 448 / 64
        layout = BlockLayout("f8E4M3FN", scheme, scheme.length, 1)
        blocks = layout.rows(codes.view(np.uint8).reshape(-1, scheme.length), np.full((1, 1), 1 / 64))
    return np.resize(blocks, (rows, columns // scheme.length * scheme.nbytes))


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
    weights: Annotated[str, typer.Option(help="Of matrices: bf16, int4 or fp8.")] = "bf16",
    target: Annotated[str, typer.Option(help="Of the programs.")] = "cuda",
    compile_only: Annotated[bool, typer.Option(help="Stop before the first launch.")] = False,
    output: Annotated[Path | None, typer.Option(help="Result as JSON.")] = None,
) -> None:
    """Prints what a token and a prompt take, as JSON."""
    if shape not in SHAPES:
        raise typer.BadParameter(f"shape is {shape}; there are {', '.join(SHAPES)}")
    if prompt + tokens > context:
        raise typer.BadParameter(
            f"{prompt} + {tokens} tokens are more than the {context} positions of the cache"
        )
    if weights != "bf16" and weights not in PACKED:
        raise typer.BadParameter(f"weights are {weights}; there are bf16, {', '.join(PACKED)}")
    family = Llama(Shapes({**COMMON, **SHAPES[shape]}))
    graph = family.decoder("llama", context, "bf16")
    matrices = [name for name, info in parameters_of(graph).items() if info.rank == 2]
    schemes = dict.fromkeys(matrices, BLOCK_SCHEMES[PACKED[weights]]) if weights in PACKED else {}
    given = {**random_weights(graph, schemes), **family.states(context, "bf16")}
    module = graph.module()
    keep_packed(module, schemes)
    executable = aicf.compile(module, given, target, dims={"T": sorted({1, prompt})})
    if compile_only:
        return
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
    parameters = sum(each.nbytes for name, each in given.items() if name.endswith("weight"))
    embedding = 0 if family.is_tied else given["token_embd.weight"].nbytes
    position = 2 * family.layers * family.kv_heads * family.head_width * 2
    read_bytes = parameters - embedding + position * (prompt + tokens // 2)
    result = {
        "shape": shape,
        "weights": weights,
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
