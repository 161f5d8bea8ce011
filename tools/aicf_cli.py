"""``aicf``: compile, run, explain and time models.

This file puts the commands together and turns errors into one line on stderr and an exit status: 0 done, 1 an error in
what was given (a difference, of `diff` and `verify`), 2 usage, 130 Ctrl-C. Commands are in ``aicf.tools.cli``.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Annotated, Any, cast

import typer
from typer.main import get_command

from aicf.errors import AicfError
from aicf.tools.cli.any_text import print_any_text
from aicf.tools.cli.bench_command import bench_command
from aicf.tools.cli.bisect_command import bisect_command
from aicf.tools.cli.calibrate_command import calibrate_command
from aicf.tools.cli.chat_command import chat_command
from aicf.tools.cli.compare_command import compare_command
from aicf.tools.cli.compile_command import compile_command
from aicf.tools.cli.devices_command import devices_command
from aicf.tools.cli.diff_command import diff_command
from aicf.tools.cli.engines_command import engines_command
from aicf.tools.cli.explain_command import explain_command
from aicf.tools.cli.policy_command import (
    apply_command,
    extract_command,
    merge_command,
    schema_command,
    validate_command,
)
from aicf.tools.cli.profile_command import profile_command
from aicf.tools.cli.quantize_command import quantize_command
from aicf.tools.cli.run_command import run_command
from aicf.tools.cli.tune_command import tune_command
from aicf.tools.cli.verify_command import verify_command
from aicf.tools.cli.version import print_version
from aicf.tools.cli.view_command import view_command

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
DEBUG = "--debug"
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])
"""The base of what is wrong with a command line, which Typer does not export."""
_MOST_USAGE = 300
"""Characters of a line of a usage error; what quotes an argument may be as long as that."""

COMMANDS: dict[str, Callable[..., None]] = {
    "compile": compile_command,
    "calibrate": calibrate_command,
    "run": run_command,
    "chat": chat_command,
    "quantize": quantize_command,
    "explain": explain_command,
    "diff": diff_command,
    "view": view_command,
    "bisect": bisect_command,
    "verify": verify_command,
    "bench": bench_command,
    "compare": compare_command,
    "profile": profile_command,
    "tune": tune_command,
    "devices": devices_command,
    "engines": engines_command,
}
POLICY_COMMANDS: dict[str, Callable[..., None]] = {
    "extract": extract_command,
    "apply": apply_command,
    "merge": merge_command,
    "validate": validate_command,
    "schema": schema_command,
}


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


app = typer.Typer(
    no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False
)
_policy = typer.Typer(no_args_is_help=True, help="Take the decisions out of a program, and put them in.")
for _app, _commands in ((app, COMMANDS), (_policy, POLICY_COMMANDS)):
    for _name, _command in _commands.items():
        _app.command(_name)(_letting_interrupts_pass(_command))
app.add_typer(_policy, name="policy")


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]  # typer calls it
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Print the Python traceback of an error as well.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compile models into static, deterministic execution graphs, and replay them."""


@cache
def _command_line() -> Any:
    """What typer makes of all signatures, which takes half of the time of a call that does little: made once."""
    return get_command(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (``sys.argv`` by default); the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    print_any_text()
    try:
        words = [word for word in given if word != DEBUG]
        status: object = _command_line().main(words, prog_name="aicf", standalone_mode=False)
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
