"""The GPU tests leave nothing on the device."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from aicf import runtime


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays() -> Iterator[None]:
    """What a module of tests took is given back at its end."""
    yield
    runtime.shutdown()
    gc.collect()
