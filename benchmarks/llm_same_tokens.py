"""The same tokens in every process and with any number of threads, and memory that does not grow.

    python benchmarks/llm_same_tokens.py model.gguf [--tokens 10000] [--processes 3] [--threads 1 --threads 2]

Each process loads the model and draws texts from seeds until it has made so many tokens. Its resident memory is read
after each text. What all processes made is compared by a hash; the growth is what the second half of the texts added to
the largest memory of the first half.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT / "benchmarks" / "host")

from timing import machine, write_result  # noqa: E402

LENGTH = 500
"""Most tokens of one text, so that texts are as long as the cache allows and each begins from an empty one."""
MOST_GROWTH = 1 << 20
"""Bytes of resident memory that the second half of a run may add."""
Found = dict[str, object]


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def one_process(model: Path, tokens: int, threads: int) -> Found:
    """What one process makes: a hash of the tokens, their number, and bytes in memory after each text."""
    import aicf.llm

    lm, made, sizes, digest = (
        aicf.llm.load(model, threads=threads, context=LENGTH + 8),
        0,
        [],
        hashlib.sha256(),
    )
    begin = lm.tokenizer.encode("The")
    for seed in count():
        sampling = aicf.llm.Sampling(temperature=1.0, top_p=0.95, seed=seed)
        text = list(lm.tokens(begin, max_tokens=min(LENGTH, tokens - made), sampling=sampling))
        digest.update(np.array(text, np.int64).tobytes())
        made += len(text)
        sizes.append(resident())
        if made >= tokens:
            return {"threads": threads, "tokens": made, "hash": digest.hexdigest(), "resident": sizes}
    raise AssertionError


def main(
    model: Annotated[Path, typer.Argument(help="a GGUF file or a folder")],
    tokens: Annotated[
        int, typer.Option(min=LENGTH + 1, help="that each process makes, in two texts or more")
    ] = 10_000,
    processes: Annotated[
        int, typer.Option(min=1, help="for each number of threads, one after the other")
    ] = 3,
    threads: Annotated[
        list[int] | None, typer.Option(help="may be given several times [default: 1 2]")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="a JSON file")] = None,
    inner: Annotated[bool, typer.Option("--one-process", hidden=True)] = False,
) -> None:
    """See the module."""
    if inner:
        print(json.dumps(one_process(model, tokens, (threads or [1])[0])))
        return
    rows = [_in_process(model, tokens, each) for each in threads or [1, 2] for _ in range(processes)]
    _show(rows)
    if output is not None:
        write_result(output, {"machine": machine(), "model": model.name, "rows": rows})
    if len({row["hash"] for row in rows}) != 1:
        sys.exit("processes made different tokens")
    if any(row["growth_bytes"] > MOST_GROWTH for row in rows):
        sys.exit(f"memory grew by more than {MOST_GROWTH} bytes")


def _in_process(model: Path, tokens: int, threads: int) -> dict[str, int | str]:
    command = [sys.executable, str(Path(__file__).resolve()), str(model), "--one-process"]
    done = subprocess.run(
        [*command, "--tokens", str(tokens), "--threads", str(threads)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    sizes = found.pop("resident")
    half = len(sizes) // 2
    growth = max(0, max(sizes[half:]) - max(sizes[:half]))
    return {**found, "texts": len(sizes), "resident_bytes": max(sizes), "growth_bytes": growth}


def _show(rows: list[dict[str, int | str]]) -> None:
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(str(value)[:16] for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
