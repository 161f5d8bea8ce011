"""Language models on the CPU: AICF and llama.cpp on the same GGUF file, the same token ids, in the same run.

    python benchmarks/llm.py model.gguf --threads 1 [--rounds 5] [--output JSON]

Two figures each: tokens a second of a prompt, and of an answer, medians of rounds in turns. Every round has a prompt of
its own, random tokens, so that nothing is found in a cache; the answer is greedy and as long as asked. llama.cpp
(package xllamacpp) rounds activations to 8 bits. AICF computes in f32, and in a row of its own with activations of 8
bits, which a policy asks for.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT / "benchmarks" / "host")

from timing import machine, write_result  # noqa: E402

import aicf.llm  # noqa: E402

Ids = list[int]
Answer = Callable[[Ids, int], tuple[float, float]]
"""Answers a prompt with so many tokens: seconds of the prompt, and of each further token."""


def _aicf(path: Path, threads: int, context: int, policy: dict[str, str] | None = None) -> Answer:
    model = aicf.llm.load(path, threads=threads, context=context, policy=policy)

    def answer(prompt: Ids, tokens: int) -> tuple[float, float]:
        start = time.perf_counter()
        logits = model.logits(prompt)
        after_prompt = time.perf_counter()
        for _ in range(tokens):
            prompt = [*prompt, int(np.argmax(logits))]
            logits = model.logits(prompt)  # computes the last token only
        return after_prompt - start, (time.perf_counter() - after_prompt) / tokens

    return answer


def _llama_cpp(path: Path, threads: int, context: int) -> Answer:
    import xllamacpp  # pyright: ignore[reportMissingImports]

    options: Any = xllamacpp.CommonParams()
    options.model.path, options.n_ctx, options.n_parallel = str(path), context, 1
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
    server: Any = xllamacpp.Server(options)

    def answer(prompt: Ids, tokens: int) -> tuple[float, float]:
        asked = {"prompt": prompt, "n_predict": tokens, "temperature": 0}
        found: list[Any] = []
        server.handle_completions({**asked, "cache_prompt": False, "ignore_eos": True}, found.append)
        timings = found[-1]["timings"]
        assert timings["prompt_n"] == len(prompt) and timings["predicted_n"] == tokens
        return timings["prompt_ms"] / 1e3, timings["predicted_ms"] / 1e3 / tokens

    return answer


ENGINES: dict[str, Callable[[Path, int, int], Answer]] = {
    "aicf": _aicf,
    "aicf, activations of 8 bits": partial(_aicf, policy={"packed_activations": "int8"}),
    "llama.cpp": _llama_cpp,
}


def main(
    model: Annotated[Path, typer.Argument(help="a GGUF file")],
    threads: Annotated[int, typer.Option(help="of each engine")] = 1,
    prompt: Annotated[int, typer.Option(help="tokens of a prompt")] = 146,
    tokens: Annotated[int, typer.Option(help="of an answer")] = 64,
    rounds: Annotated[int, typer.Option(help="of which the median is taken")] = 5,
    output: Annotated[Path | None, typer.Option(help="a JSON file")] = None,
) -> None:
    """See the module."""
    context = prompt + tokens + 1
    engines = {name: make(model, threads, context) for name, make in ENGINES.items()}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    rng = np.random.default_rng(0)
    for _ in range(rounds + 1):
        ids = rng.integers(1000, 40000, prompt).tolist()
        for name, answer in engines.items():
            times[name].append(answer(ids, tokens))
    rows = [_row(name, found[1:], prompt) for name, found in times.items()]  # the first round warms up
    _show(rows, model.name, threads)
    if output is not None:
        sizes = {"prompt": prompt, "tokens": tokens, "rounds": rounds}
        write_result(
            output, {"machine": machine(), "model": model.name, "threads": threads, **sizes, "rows": rows}
        )


def _row(name: str, found: Sequence[tuple[float, float]], prompt: int) -> dict[str, object]:
    before, each = (statistics.median(column) for column in zip(*found, strict=True))
    return {
        "engine": name,
        "prompt_tokens_a_second": round(prompt / before, 1),
        "tokens_a_second": round(1 / each, 1),
    }


def _show(rows: Sequence[dict[str, object]], model: str, threads: int) -> None:
    table = Table(*rows[0], title=f"{model}, threads {threads}", title_justify="left")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
