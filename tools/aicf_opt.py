"""``aicf-opt``: run any pass or pipeline on a program, print the result.

``xdsl-opt`` with our dialects, passes and parser, and with errors made for people: one line
``file:line:col: error: ...`` on stderr, then the operation, its users and its source ids. A pass that finds nothing to
do in the program gives a line of the same form, a remark. Nothing is compiled and no device is touched. Exit status:
0 done, 1 an error in the program or pipeline, 2 usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from io import StringIO
from typing import IO, NoReturn

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Dialect
from xdsl.passes import ModulePass, PassPipeline
from xdsl.universe import XDSL_UNIVERSE, Universe
from xdsl.utils.exceptions import ArgSpecParseError
from xdsl.xdsl_opt_main import xDSLOptMain

from aicf.errors import AicfError, InvalidIR
from aicf.frontends.text import location_of, parse_module, verify_module
from aicf.passes.pipelines.named_pipeline import NamedPipeline
from aicf.passes.pipelines.text import apply_pass, parse_pipeline
from aicf.passes.support.works_on import nothing_to_do
from aicf.saving.artifact import toolchain_lock
from aicf.support.arguments import path_from
from aicf.support.files import write_whole
from aicf.tools.cli.any_text import print_any_text
from aicf.tools.pass_listing import HelpFormatter, ListPasses, describe_arguments
from aicf.tools.pass_trace import PassTrace
from aicf.universe import AICF_UNIVERSE

EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def _union(*universes: Universe) -> Universe:
    """One universe; a later one wins, so that our own entries come once, installed or not."""
    dialects: dict[str, Callable[[], Dialect]] = {}
    passes: dict[str, Callable[[], type[ModulePass]]] = {}
    targets = XDSL_UNIVERSE.all_targets.copy()
    for universe in universes:
        dialects |= universe.all_dialects
        passes |= universe.all_passes
        targets |= universe.all_targets
    return Universe(all_dialects=dialects, all_passes=passes, all_targets=targets)


class AicfOptMain(xDSLOptMain):
    """The driver; :meth:`run` raises :class:`AicfError` and leaves exit codes to :func:`main`."""

    version_format = f"aicf-opt {toolchain_lock()['aicf']} on xDSL {{xdsl_version}}"

    def __init__(self, args: Sequence[str] | None = None) -> None:
        self._universe = _union(XDSL_UNIVERSE, Universe.get_multiverse(), AICF_UNIVERSE)
        self._offset = 0
        super().__init__(description="Run passes on a program, and print the result.", args=args)

    def register_all_dialects(self) -> None:
        for name, factory in self._universe.all_dialects.items():
            self.ctx.register_dialect(name, factory)

    def register_all_passes(self) -> None:
        self.available_passes = dict(self._universe.all_passes)

    def register_all_targets(self) -> None:
        self.available_targets = dict(self._universe.all_targets)

    def register_all_frontends(self) -> None:
        self.available_frontends["mlir"] = self._parse_mlir

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        arg_parser.prog = "aicf-opt"
        arg_parser.formatter_class = HelpFormatter
        # There is one frontend: a program is text whatever its file is called.
        arg_parser.set_defaults(frontend="mlir")
        arg_parser.add_argument(
            "--debug", action="store_true", help="Print the Python traceback of an error as well"
        )
        arg_parser.add_argument(
            "--list-passes",
            action=ListPasses,
            passes=self.available_passes,
            help="Print all passes, each with what it does and its options, one a line",
        )
        describe_arguments(arg_parser, self.available_targets)
        usage_error = arg_parser.error

        def shortened(message: str) -> NoReturn:
            usage_error(AicfError(message).message)

        arg_parser.error = shortened

    def _parse_mlir(self, stream: IO[bytes]) -> ModuleOp:
        return parse_module(
            stream.read(),
            self.get_input_name(),
            context=self.ctx,
            line_offset=self._offset,
            verify=not self.args.disable_verify,
            implicit_module=not self.args.no_implicit_module,
        )

    def setup_pipeline(self) -> None:
        passes = parse_pipeline(self.args.passes, self.available_passes, _resolve_target_option)
        self.pipeline = PassPipeline(passes)

    def apply_passes(self, prog: ModuleOp) -> None:
        """Run the pipeline, verifying after each pass that it names."""
        between = (lambda: self.output_resulting_program(prog)) if self.args.print_between_passes else None
        trace = PassTrace(self.args.time_passes, between)
        for module_pass in self.pipeline.passes:
            if (reason := nothing_to_do(module_pass, prog)) is not None:
                _remark(prog, module_pass, reason)
            self._apply_pass(module_pass, prog, trace)
            self._verify_after(module_pass, prog)

    def _apply_pass(self, module_pass: ModulePass, prog: ModuleOp, trace: PassTrace) -> None:
        if isinstance(module_pass, NamedPipeline):
            with trace.of_pipeline(module_pass):
                module_pass.run_each(prog, lambda step: self._apply_pass(step, prog, trace))
        else:
            with trace.of_pass(module_pass):
                apply_pass(module_pass, self.ctx, prog)

    def _verify_after(self, module_pass: ModulePass, prog: ModuleOp) -> None:
        if self.args.disable_verify:
            return
        try:
            verify_module(prog)
        except InvalidIR as error:
            error.add_note(f"after pass: {module_pass.name}")
            raise

    def run(self) -> None:
        """Parse, transform and print each chunk of the input."""
        for what, path in (("the input", self.args.input_file), ("the output", self.args.output_file)):
            if path is not None:
                path_from(path, InvalidIR, what)
        chunks, extension = self._open_input()
        buffer = StringIO()
        printed: IO[str] = buffer if self.args.output_file is not None else sys.stdout
        silent = 0
        for index, (chunk, offset) in enumerate(chunks):
            if index > 0:
                printed.write("// -----\n")
            self._offset = offset
            with chunk:
                silent += not self._run_chunk(chunk, extension, printed)
        if self.args.output_file is not None:
            _write_output(self.args.output_file, buffer.getvalue())
        if silent and (self.args.verify_diagnostics or self.args.parsing_diagnostics):
            raise InvalidIR(
                f"expected an error and found none in {silent} of {len(chunks)} programs",
                location=self.get_input_name(),
            )

    def _run_chunk(self, chunk: IO[bytes], extension: str, printed: IO[str]) -> bool:
        """Process one program; true if it gave a diagnostic that the options ask to print."""
        try:
            module = self.parse_chunk(chunk, extension)
            assert module is not None
            self.apply_passes(module)
            printed.write(self._print_module(module))
            printed.flush()
        except AicfError as error:
            if not (self.args.verify_diagnostics or self.args.parsing_diagnostics):
                raise
            sys.stdout.write(format_error(error))
            return True
        return False

    def _print_module(self, module: ModuleOp) -> str:
        try:
            return self.output_resulting_program(module)
        except RecursionError:
            raise InvalidIR("the program is nested too deeply to print") from None
        except Exception as error:
            raise InvalidIR(
                f"target {self.args.target!r} cannot print this program: {type(error).__name__}: {error}",
                location=location_of(module),
            ) from error

    def _open_input(self) -> tuple[list[tuple[IO[bytes], int]], str]:
        name = self.get_input_name()
        try:
            return self.prepare_input()
        except OSError as error:
            raise InvalidIR(f"cannot read the program: {error.strerror}", location=name) from error


def _resolve_target_option(pass_name: str, option: str, value: str) -> str:
    """A bare target such as ``cpu`` means this machine: resolve it once, before any pass reads it."""
    if option != "target" or pass_name not in AICF_UNIVERSE.all_passes or ":" in value:
        return value
    from aicf.backends.registry import resolve_target, target_spec

    return target_spec(resolve_target(value))


def _remark(module: ModuleOp, module_pass: ModulePass, reason: str) -> None:
    """Tells on stderr that a pass that the user named finds nothing to do."""
    prefix = location_of(module) or "aicf-opt"
    sys.stderr.write(f"{prefix}: remark: {module_pass.name}: nothing to do: {reason}\n")


def _write_output(path: str, text: str) -> None:
    try:
        write_whole(path, lambda stream: stream.write(text.encode()))
    except OSError as error:
        raise InvalidIR(f"cannot write the output: {error.strerror}", location=path) from error


def format_error(error: AicfError) -> str:
    """``file:line:col: error: message`` and the notes, one line each."""
    prefix = error.location or "aicf-opt"
    notes = "".join(f"  {note}\n" for note in getattr(error, "__notes__", ()))
    return f"{prefix}: error: {error.message}\n{notes}"


@contextlib.contextmanager
def _restored_verification() -> Generator[None]:
    """Undo ``--disable-verify``, which patches xDSL's attribute class for the whole process."""
    before = Attribute.__post_init__
    try:
        yield
    finally:
        Attribute.__post_init__ = before


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the driver on command-line arguments (``sys.argv`` by default); the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    print_any_text()
    try:
        with _restored_verification():
            AicfOptMain(arguments).run()
    except AicfError as error:
        if debug:
            traceback.print_exc()
        sys.stderr.write(format_error(error))
        return EXIT_ERROR
    except ArgSpecParseError as error:
        # xDSL parses -t/--target as a spec and lets this one, a BaseException, through.
        reason = AicfError(str(error).splitlines()[-1].strip(" ^")).message
        sys.stderr.write(f"aicf-opt: error: malformed --target: {reason}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        sys.stderr.write("aicf-opt: interrupted\n")
        return EXIT_INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE
    except BrokenPipeError:
        # The reader went away (`| head`); the interpreter must not flush to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
