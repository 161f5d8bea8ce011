"""What holds for all tests."""

import gc
import os
from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest

# Before NumPy is imported: its threads wait by spinning, which takes the cores from the other processes of the tests.
# To train the classifier of the digits took 13.5 s of CPU with two threads, and takes 0.7 s with one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if find_spec("hypothesis") is not None:  # the GPU tests do without it
    from hypothesis import HealthCheck, settings

    # No test asserts a time: how long inputs take to make says how busy the machine is.
    settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("untimed")

from tests.repeated_work import llvm_compiles_a_text_once, pytorch_looks_up_composite_ops_once

__all__ = ["llvm_compiles_a_text_once", "pytorch_looks_up_composite_ops_once"]


@pytest.fixture(scope="module")
def few_objects() -> None:
    """For files whose tests ask for sweeps of the collector: what earlier files left is set apart, a second for each
    sweep."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-drawn", action="store_true", help="all cases of tests marked drawn, not half of them"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the random cases of one test, half: always the same ones, the first among them. Their numbers have every
    remainder of 2, 3 and 4, since what a seed means often follows from that."""
    if config.getoption("all_drawn"):
        return
    seen, kept, left = Counter[str](), list[pytest.Item](), list[pytest.Item]()
    for item in items:
        number = 0
        if item.get_closest_marker("drawn") is not None:
            function = item.nodeid.partition("[")[0]
            number = seen[function]
            seen[function] += 1
        (kept if number % 8 in (0, 2, 5, 7) else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files are distributed by a scheduler that outlives crashes."""
    if config.getvalue("dist") != "loadfile":
        return None
    # Not above: the GPU tests do without pytest-xdist.
    from tests.file_scheduling import FileScheduling

    return FileScheduling(config, log)


def pytest_collection_finish() -> None:
    """Collections of cycles are a fifth of the time of the tests: IR is cycles, and every sweep walks what pytest and
    the modules hold as well. That is set apart, and the rest is swept less often: what a compile leaves is garbage by
    the time that others have left as much, and is walked once. It takes some 100 MB more."""
    gc.freeze()
    gc.set_threshold(2_000_000, 10, 10)
