"""Texts in batches of 1 to 32 against the same texts one at a time, and what batch invariance costs.

    python benchmarks/llm_batches.py model.gguf [--sequences 64] [--batches 1,2,4,8,16,32] [--price 8] [--target cpu]

Prompts of random tokens and answers have mixed lengths; every second text is greedy, the others are drawn, each with a
seed of its own. With `determinism: batch_invariant` all tokens have to be equal, or the command fails. The price is the
time of a run of a batch with the policy and without it, of the clock and of all threads (CPU time), medians in turns.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import aicf.llm
from aicf.llm import LanguageModel, Sampling, Text

CONTEXT = 128
INVARIANT = {"determinism": "batch_invariant"}
ROUNDS = 7


def texts(random: np.random.Generator, vocabulary: int, count: int, most: int | None = None) -> list[Text]:
    """Prompts of 4 to 64 tokens, and answers of 4 to 48 or of `most`."""
    return [
        Text(
            random.integers(0, vocabulary, int(random.integers(4, 65))).tolist(),
            int(random.integers(4, 49)) if most is None else most,
            Sampling(temperature=0.8, top_p=0.95, seed=number) if number % 2 else Sampling(),
        )
        for number in range(count)
    ]


def fresh(asked: Sequence[Text]) -> list[Text]:
    """The same texts, of which nothing is made."""
    return [Text(text.prompt, text.most, text.sampling) for text in asked]


def made(model: LanguageModel, asked: Sequence[Text], batch: int) -> list[list[int]]:
    """The tokens of each text."""
    again = fresh(asked)
    found: Mapping[Text, list[int]] = {text: [] for text in again}
    for text, token in model.tokens_batch(again, batch=batch):
        found[text].append(token)
    return list(found.values())


def compare(model: LanguageModel, asked: Sequence[Text], batches: Sequence[int]) -> bool:
    """Whether all texts have the same tokens in batches of these sizes as one at a time; prints how many have."""
    alone = [[*model.tokens(text.prompt, max_tokens=text.most, sampling=text.sampling)] for text in asked]
    total, is_equal = sum(map(len, alone)), True
    print(f"one at a time: {len(alone)} texts, {total:,} tokens")
    for batch in batches:
        found = made(model, asked, batch)
        equal = sum(one == other for one, other in zip(found, alone, strict=True))
        is_equal = is_equal and equal == len(alone)
        print(f"batches of {batch}: {equal} of {len(alone)} texts equal; {model.stats.answer}", flush=True)
    return is_equal


def run_ms(model: LanguageModel, asked: Sequence[Text]) -> tuple[float, float]:
    """Milliseconds of a run of one batch: of the clock, and of all threads of this process. A prompt gives the first
    token of its text, so runs begin once all prompts have given theirs."""
    texts_made = (text for text, _ in model.tokens_batch(fresh(asked), batch=len(asked)))
    made = Counter(islice(texts_made, len(asked)))
    wall, cpu = time.perf_counter(), time.process_time()
    made.update(texts_made)
    wall, cpu, runs = time.perf_counter() - wall, time.process_time() - cpu, max(made.values()) - 1
    return 1e3 * wall / runs, 1e3 * cpu / runs


def price(models: Sequence[LanguageModel], batch: int) -> None:
    """Prints the milliseconds of a run of each model, on the same texts."""
    times: list[list[tuple[float, float]]] = [[] for _ in models]
    for round_ in range(ROUNDS):
        asked = texts(np.random.default_rng(round_), models[0].vocabulary, batch, most=48)
        for model, own in zip(models, times, strict=True):
            own.append(run_ms(model, asked))
    for kind, free, fixed in zip(
        ("clock", "CPU time"), *(zip(*own, strict=True) for own in times), strict=True
    ):
        before, after = statistics.median(free), statistics.median(fixed)
        spread = ", ".join(f"{min(own):.2f} to {max(own):.2f}" for own in (free, fixed))
        print(
            f"a run of {batch}, {kind}: {before:.2f} ms, batch-invariant {after:.2f} ms "
            f"({after / before - 1:+.1%}; {spread})"
        )


def main(
    path: Path,
    sequences: int = 64,
    batches: Annotated[str, typer.Option(help="Sizes, apart by commas.")] = "1,2,4,8,16,32",
    price_of: Annotated[
        int, typer.Option("--price", min=0, max=32, help="Sequences of the timed batch; 0 times none.")
    ] = 8,
    target: str = "cpu",
    threads: int = 1,
    cache: Annotated[Path | None, typer.Option(help="Folder of compiled models.")] = None,
) -> None:
    """See the module."""
    start = time.perf_counter()

    def load(policy: Mapping[str, str]) -> LanguageModel:
        return aicf.llm.load(path, target, context=CONTEXT, threads=threads, cache_dir=cache, policy=policy)

    model = load(INVARIANT)
    asked = texts(np.random.default_rng(64), model.vocabulary, sequences)
    is_equal = compare(model, asked, [int(size) for size in batches.split(",")])
    if price_of:
        price([load({}), model], price_of)
    print(f"{time.perf_counter() - start:.0f} s")
    sys.exit(0 if is_equal else 1)


if __name__ == "__main__":
    typer.run(main)
