"""Lets pytest collect the lit files of this folder, one test each, run by ``tests/lit/runner.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lit.runner import INPUTS_FOLDER, LitFailure, run_lit_file


class LitItem(pytest.Item):
    """All RUN lines of one file."""

    def runtest(self) -> None:
        folder = Path(self.config._tmp_path_factory.mktemp("lit"))  # type: ignore[attr-defined]
        run_lit_file(self.path, folder / self.path.stem)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, LitFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self):
        return self.path, None, self.name


class LitFile(pytest.File):
    """One lit file."""

    def collect(self) -> Iterator[LitItem]:
        yield LitItem.from_parent(self, name=self.path.stem)


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> LitFile | None:
    if file_path.suffix == ".mlir" and INPUTS_FOLDER not in file_path.parts:
        return LitFile.from_parent(parent, path=file_path)
    return None
