"""The GPU tests leave nothing on the device, and their log says which one it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress

import pytest

from aicf import runtime
from aicf.errors import BackendUnavailable


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays() -> Iterator[None]:
    """What a module of tests took is given back at its end."""
    yield
    runtime.shutdown()
    gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A line for each GPU; none where there is none."""
    with suppress(BackendUnavailable):
        for device in runtime.devices("cuda"):
            terminalreporter.write_line(f"{device.name}, {device.arch}, {device.memory}")
