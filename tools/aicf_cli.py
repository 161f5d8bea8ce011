"""``aicf``: compile, run, explain and time models.

This file puts the commands together and turns errors into one line on stderr and an exit status: 0 done, 1 an error in
what was given (a difference, of `diff` and `verify`), 2 usage, 130 Ctrl-C. Commands are in ``aicf.tools.cli``.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.main import get_command

from aicf.errors import AicfError
from aicf.tools.cli.any_text import print_any_text
from aicf.tools.cli.version import print_version

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
DEBUG = "--debug"
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""The base of what is wrong with a command line, which Typer does not export."""
_MOST_USAGE = 300
"""Characters of a line of a usage error; what quotes an argument may be as long as that."""

COMMANDS = (
    "compile",
    "calibrate",
    "run",
    "chat",
    "quantize",
    "explain",
    "diff",
    "view",
    "bisect",
    "verify",
    "bench",
    "compare",
    "profile",
    "tune",
    "devices",
    "engines",
)
"""In the order of `aicf --help`; each is the function `NAME_command` of the module of that name in `aicf.tools.cli`."""
POLICY = "policy"
POLICY_COMMANDS = ("extract", "apply", "merge", "validate", "schema")
"""Commands after the word `policy`, all of one module."""


class _Interrupted(BaseException):
    """Ctrl-C, on its way past Typer, which would turn it into an exit status of its own."""


def _letting_interrupts_pass(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(*args: object, **options: object) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt:
            raise _Interrupted from None

    return run


def app_of(name: str | None = None) -> typer.Typer:
    """The command line: with all commands, or with the one that is called, so that those of others are not imported.

    Args:
        name: One of `COMMANDS`, or `policy` for its commands; None for all.
    """
    app = typer.Typer(
        no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False
    )
    app.callback()(_options)
    for each in COMMANDS:
        if name in (None, each):
            _add(app, each, f"{each}_command")
    if name in (None, POLICY):
        policy = typer.Typer(
            no_args_is_help=True, help="Take the decisions out of a program, and put them in."
        )
        for each in POLICY_COMMANDS:
            _add(policy, each, "policy_command")
        app.add_typer(policy, name=POLICY)
    return app


def _add(app: typer.Typer, name: str, module: str) -> None:
    command: Callable[..., None] = getattr(import_module(f"aicf.tools.cli.{module}"), f"{name}_command")
    app.command(name)(_letting_interrupts_pass(command))


def _options(
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Print the Python traceback of an error as well.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile models into static, deterministic execution graphs, and replay them."""


@cache
def _command_line(name: str | None) -> Any:
    """What typer makes of the signatures of `app_of`: made once in a process that runs several commands."""
    return get_command(app_of(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (``sys.argv`` by default); the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    print_any_text()
    try:
        words = [word for word in given if word != DEBUG]
        name = next((word for word in words[:1] if word in (*COMMANDS, POLICY)), None)
        status: object = _command_line(name).main(words, prog_name="aicf", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except _UsageError as error:
        _shorten(error)
        error.show()
        return EXIT_USAGE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except AicfError as error:
        if DEBUG in given:
            traceback.print_exc()
        prefix = error.location or "aicf"
        sys.stderr.write(f"{prefix}: error: {error.message}\n")
        return EXIT_ERROR
    except (_Interrupted, KeyboardInterrupt):
        sys.stderr.write("aicf: interrupted\n")
        return EXIT_INTERRUPTED


def _shorten(error: typer.BadParameter) -> None:
    """Cuts what a usage error quotes as other errors are cut; texts of many short lines, which are help, stay."""
    if any(len(line) > _MOST_USAGE for line in error.message.splitlines()):
        error.message = AicfError(error.message).message


if __name__ == "__main__":
    sys.exit(main())
