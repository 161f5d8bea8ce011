"""The fake GPU of the tests, and where they compile kernels."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from aicf import runtime
from aicf.backends.cuda.compiler import worker_pool
from aicf.backends.cuda.runtime import device as device_module
from aicf.backends.cuda.runtime import driver as driver_module
from tests.backends.cuda.fake_driver import FakeDriver


@pytest.fixture(autouse=True, scope="package")
def few_kernels_are_compiled_here() -> Iterator[None]:
    """A process that imports Numba for the few kernels of a test takes 0.6 s of CPU, and finds no free core."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_pool, "STARTS_WITH", 16)
        yield


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver with one H100 and nothing on it. What a test leaves in cycles is given back at its end; what was there
    before is set apart for good, or each later sweep would walk all that earlier tests and the modules hold."""
    gc.collect()
    gc.freeze()
    driver = FakeDriver()
    monkeypatch.setattr(driver_module, "open_driver", lambda: driver)
    monkeypatch.setattr(device_module, "open_driver", lambda: driver)
    yield driver
    driver.broken = 0
    runtime.shutdown()
    gc.collect()
