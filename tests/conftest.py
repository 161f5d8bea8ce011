"""What holds for all tests."""

import gc
import os
from collections.abc import Generator
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

from tests.drawn_cases import in_half, number_cases, position_of
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
        "--half-drawn",
        action="store_true",
        help="of tests marked drawn, about half of the cases: always the same",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Here all cases of a test are together; later only those that are named."""
    made = yield
    if isinstance(made, list):
        number_cases(made)
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("half_drawn"):
        return
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        runs = item.get_closest_marker("drawn") is None or in_half(position_of(item))
        (kept if runs else left).append(item)
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
