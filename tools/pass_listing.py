"""`aicf-opt --list-passes` and the texts of `aicf-opt --help` that xDSL's own do not fit."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Mapping, Sequence

from xdsl.passes import ModulePass

from aicf.passes.pipelines.text import PassTable, pass_options, pass_summary
from aicf.universe import AICF_UNIVERSE

_HELP = {
    "input_file": "Program to read; standard input if none is given",
    "frontend": "Language of the input; programs are text in any case",
    "disable_verify": "Do not verify programs, neither what is read nor what passes make",
    "allow_unregistered_dialect": "Allow operations of dialects that are not registered",
    "no_implicit_module": "Expect the program to write its builtin.module",
    "output_file": "File to write; standard output by default",
    "passes": "Passes to run, with their options, as in 'assign-ids,fold-constants{limit=4}'; --list-passes lists all",
    "print_between_passes": "Print the program after each pass, also of those inside a named pipeline",
    "time_passes": "Print the time of each pass on stderr, also of those inside a named pipeline",
    "verify_diagnostics": "Print errors on standard output, and end with status 0 if each program has one",
    "parsing_diagnostics": "The same as --verify-diagnostics",
    "split_input_file": "Split the input at `// -----`, and treat the pieces as programs of their own",
    "print_op_generic": "Print operations in the generic form",
    "print_no_properties": "Print properties as attributes",
    "print_debuginfo": "Print the locations of operations",
    "syntax_highlight": "Print with colors",
    "version": "Print the versions of AICF and xDSL",
    "shrink": "End with status 0 if a pass raised ShrinkException, for tools that make programs smaller",
}
"""What an argument is for, by its name."""


class HelpFormatter(argparse.HelpFormatter):
    """Breaks lines at spaces only, so that names of passes and targets stay whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in _wrapped(text, width - len(indent)))


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False, break_long_words=False)


def describe_arguments(parser: argparse.ArgumentParser, targets: Mapping[str, object]) -> None:
    """Puts our words in place of xDSL's for what its arguments are for."""
    texts = {**_HELP, "target": f"Format of the output, mlir by default: {', '.join(sorted(targets))}"}
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]  # argparse has no other way to them
        action.help = texts.get(action.dest, action.help)


class ListPasses(argparse.Action):
    """`--list-passes`: prints the list and ends."""

    def __init__(self, *arguments: object, passes: PassTable, **options: object) -> None:
        super().__init__(*arguments, nargs=0, **options)  # pyright: ignore[reportArgumentType]
        self._passes = passes

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        print("\n".join(pass_lines(self._passes)))
        parser.exit()


def pass_lines(passes: Mapping[str, Callable[[], type[ModulePass]]]) -> list[str]:
    """A line for each pass, ours first: its name, what it does, and its options in braces.

    Of others it says that they are xDSL's, for what those do is in no one place.
    """
    ours = [name for name in passes if name in AICF_UNIVERSE.all_passes]
    others = sorted(name for name in passes if name not in AICF_UNIVERSE.all_passes)
    width = max(map(len, ours), default=0)
    return [
        *(f"{name:<{width}}  {_described(passes[name]())}" for name in ours),
        *(f"{name:<{width}}  (xDSL)" for name in others),
    ]


def _described(pass_class: type[ModulePass]) -> str:
    options = ", ".join(pass_options(pass_class))
    return pass_summary(pass_class) + (f" {{{options}}}" if options else "")
