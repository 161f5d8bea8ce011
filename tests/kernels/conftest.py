"""Every test defines the ops and kernels that it needs, and leaves none to the tests after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aicf.testing import temporary_definitions


@pytest.fixture(autouse=True)
def _own_definitions() -> Iterator[None]:
    with temporary_definitions():
        yield
