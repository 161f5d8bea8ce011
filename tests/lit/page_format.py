"""Pages as a test format of plain ``lit`` (``lit_tests/tutorial``); a module of its own, for lit's worker processes."""

from __future__ import annotations

from pathlib import Path

import lit.formats
import lit.Test

from tests.lit.pages import run_page


class PageFormat(lit.formats.FileBasedTest):
    """One test a page."""

    def execute(self, test: lit.Test.Test, lit_config: object) -> tuple[lit.Test.ResultCode, str]:
        """Whether the page is right, and what is not."""
        done = run_page(Path(test.getSourcePath()))
        return (lit.Test.FAIL if done.returncode else lit.Test.PASS), done.stdout
