"""`aicf chat`: a conversation with a language model in the terminal."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aicf.errors import AicfError, InputMismatch
from aicf.passes.pipelines.collector import collector_paused
from aicf.tools.cli.any_text import read_any_text
from aicf.tools.cli.arguments import Policy, Threads

if TYPE_CHECKING:
    from aicf.llm import Chat, LanguageModel
    from aicf.llm.chat_template import ChatTemplate

HELP = """\
/reset         begins the conversation anew
/system TEXT   says what the model's part is, and begins anew; without TEXT there is none
/stats         tokens a second of the last answer, and memory
/exit          ends, as Ctrl-D does; Ctrl-C ends an answer"""


def chat_command(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A .gguf file, or a Hugging Face folder.", show_default=False),
    ],
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Answer this alone, and end.", show_default=False),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model's part is.", show_default=False)
    ] = None,
    template: Annotated[
        Path | None, typer.Option(help="A chat template, in place of the model's own.", show_default=False)
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(min=0, help="Most tokens of an answer; by default those that fit.", show_default=False),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="End an answer before this text; may be given several times.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="What logits are divided by; 0 takes the likeliest token.")
    ] = 0.7,
    top_k: Annotated[int, typer.Option(help="Draw among this many of the likeliest tokens; 0: all.")] = 40,
    top_p: Annotated[
        float, typer.Option(help="Draw among the likeliest tokens of this probability together; 1: all.")
    ] = 0.95,
    min_p: Annotated[
        float, typer.Option(help="Draw tokens at least this likely, as a share of the likeliest; 0: all.")
    ] = 0.05,
    repetition_penalty: Annotated[
        float, typer.Option(help="Makes tokens that came before less likely; 1: not.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the random numbers: the same gives the same answers.")] = 0,
    context: Annotated[
        int | None,
        typer.Option(
            help="Positions of the cache; the model's, at most 2,048, by default.", show_default=False
        ),
    ] = None,
    target: Annotated[str, typer.Option(help="Such as cpu or cuda.")] = "cpu",
    dtype: Annotated[
        str | None,
        typer.Option(
            help="f32, bf16 or f16; by default bf16 on a GPU for weights that are not in blocks, else f32.",
            show_default=False,
        ),
    ] = None,
    threads: Threads = 1,
    policy: Policy = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of compiled models: later starts compile nothing.", show_default=False),
    ] = None,
) -> None:
    """Talk with a language model: text comes as it is made. /help says what else a line may be."""
    # Before NumPy is imported, which starts threads for products of matrices: programs have kernels of their own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with collector_paused():
        from aicf.llm import Sampling
        from aicf.llm.chat_template import file_template
        from aicf.llm.loading import load_opened, open_model
        from aicf.llm.stopping import stop_strings

        # What can be wrong is told before a model is compiled, which takes a while.
        sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
        stops = stop_strings(stop or ())
        given = None if template is None else file_template(template)
        opened = open_model(model)
        _check_template(opened.template if given is None else given, model)
        loaded = load_opened(
            opened, target, context=context, threads=threads, cache_dir=cache, policy=policy, dtype=dtype
        )
        gc.freeze()  # a model stays until the command ends, so no sweep needs to walk it
    try:
        limit = {} if max_tokens is None else {"max_tokens": max_tokens}
        chat = loaded.chat(system, template=given, stop=stops, **asdict(sampling), **limit)
        if prompt is None:
            _talk(loaded, chat, model)
        else:
            _print_pieces(chat.say(prompt))
    finally:
        gc.unfreeze()


def _talk(loaded: LanguageModel, chat: Chat, model: Path) -> None:
    """Reads lines until there are no more."""
    read_any_text()
    with suppress(ImportError):  # makes `input` edit lines and remember them, where there is one
        import_module("readline")
    print(f"{model.stem}, {loaded.capacity:,} positions. /help says what a line may be.")
    _converse(loaded, chat)


def _check_template(template: ChatTemplate | None, model: Path) -> None:
    """Raises InputMismatch if there is none, or it has an error."""
    if template is None:
        raise InputMismatch("the model has no chat template; give one with --template", location=str(model))
    template.check()


def _converse(model: LanguageModel, chat: Chat) -> None:
    """Line by line, until the user ends it. An error of one answer ends that alone."""
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print("\n(Ctrl-D or /exit ends)")
            continue
        if line == "/exit":
            return
        try:
            _answer(model, chat, line)
        except KeyboardInterrupt:
            print()
        except AicfError as error:
            print(f"error: {error.message}", file=sys.stderr)


def _answer(model: LanguageModel, chat: Chat, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word.startswith("/"):
        command = _COMMANDS.get(word)
        print(
            f"there is no {word}; /help lists what there is"
            if command is None
            else command(model, chat, rest)
        )
    elif line:
        _print_pieces(chat.say(line))


def _print_pieces(pieces: Iterable[str]) -> None:
    """Text as it comes, and the end of its line."""
    for piece in pieces:
        print(piece, end="", flush=True)
    print()


def _help(model: LanguageModel, chat: Chat, rest: str) -> str:
    return HELP


def _reset(model: LanguageModel, chat: Chat, rest: str) -> str:
    chat.reset()
    return "(a new conversation)"


def _system(model: LanguageModel, chat: Chat, rest: str) -> str:
    chat.system = rest.strip() or None
    return "(a new conversation)"


def _stats(model: LanguageModel, chat: Chat, rest: str) -> str:
    return str(model.stats)


_COMMANDS: dict[str, Callable[[LanguageModel, Chat, str], str]] = {
    "/help": _help,
    "/reset": _reset,
    "/system": _system,
    "/stats": _stats,
}
