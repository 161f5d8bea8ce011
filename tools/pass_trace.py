"""What `aicf-opt` prints of the passes that run: their times, and the program between them.

Passes inside a named pipeline are traced one by one; the pipeline itself has a time only, the last line of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from xdsl.passes import ModulePass

INDENT = "  "


class PassTrace:
    """Prints as its options say.

    Args:
        times: Whether each pass gets a line with its seconds on stderr, those inside a pipeline indented.
        text: The program now; its text is printed on stdout after each pass but the last one that runs, and "the
            same" in place of a text that the pass did not change. None prints none.
    """

    def __init__(self, times: bool, text: Callable[[], str] | None) -> None:
        self._times = times
        self._text = text
        self._depth = 0
        self._ran: str | None = None
        self._shown: str | None = None

    @contextmanager
    def of_pipeline(self, pipeline: ModulePass) -> Generator[None]:
        """The time of a named pipeline; the passes inside it are traced in the block."""
        self._depth += 1
        started = time.perf_counter()
        try:
            yield
        finally:
            self._depth -= 1
        self._took(pipeline, started)

    @contextmanager
    def of_pass(self, module_pass: ModulePass) -> Generator[None]:
        """One pass, which runs in the block."""
        self._print_after_last()
        started = time.perf_counter()
        yield
        self._took(module_pass, started)
        self._ran = module_pass.name

    def _took(self, module_pass: ModulePass, started: float) -> None:
        if self._times:
            seconds = time.perf_counter() - started
            indent = INDENT * self._depth
            print(f"{indent}Pass {module_pass.name} took {seconds:.6f} seconds", file=sys.stderr)

    def _print_after_last(self) -> None:
        """The program after the pass that ran last: now that another one follows, it lies between two."""
        if self._text is None or self._ran is None:
            return
        text = self._text()
        print(
            f"// IR after {self._ran}: the same"
            if text == self._shown
            else f"// IR after {self._ran}:\n{text}"
        )
        self._shown = text
