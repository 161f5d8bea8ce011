"""`aicf quantize`: writes a language model with weights in blocks of few bits, and says what that costs."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, cast

import typer

from aicf.errors import InputMismatch
from aicf.support.dataclass_json import to_json_value
from aicf.support.files import reason_of
from aicf.tools.cli.arguments import Json, Threads
from aicf.tools.cli.outputs import check_output


class BlockScheme(Enum):
    """Values of `--scheme`."""

    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"
    Q8_0 = "Q8_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"


def quantize_command(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A .gguf file, or a Hugging Face folder.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="GGUF file to write.", show_default=False)],
    scheme: Annotated[BlockScheme, typer.Option(help="Of the blocks of matrices.")] = BlockScheme.Q4_K,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=SCHEME",
            help="Another scheme, F16 or F32 for the tensors of these names, such as 'blk.*.ffn_down.weight=Q6_K'; may "
            "be given several times.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(help="Text file whose perplexity is measured before and after.", show_default=False),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Tokens predicted from one another; by default those of the cache.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Round the weights of a language model to blocks of few bits.

    The file that is written is for `aicf chat` and llama.cpp. The error of each tensor is printed, the worst first.
    """
    from aicf.llm import quantize

    check_output(output, "the model", model, text)
    sample = None if text is None else _read(text)
    found = quantize(
        model, output, scheme.value, keep=_patterns(keep or ()), text=sample, window=window, threads=threads
    )
    if as_json:
        print(json.dumps(cast(object, to_json_value(found)), indent=2))
    else:
        print(f"{output}: {found}")


def _patterns(stated: list[str] | tuple[()]) -> dict[str, str]:
    """Schemes by patterns. Raises InputMismatch for what is no such pair."""
    found: dict[str, str] = {}
    for each in stated:
        pattern, is_pair, scheme = each.rpartition("=")
        if not is_pair or not pattern:
            raise InputMismatch(f"keep: '{each}' is no PATTERN=SCHEME; write such as 'output.weight=Q8_0'")
        found[pattern] = scheme
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputMismatch(
            f"it is no UTF-8: {error.reason}; write it as UTF-8", location=str(path)
        ) from error
    except OSError as error:
        raise InputMismatch(
            f"cannot read it: {reason_of(error)}; check the path", location=str(path)
        ) from error
