"""Every test of the backend begins without what TorchDynamo traced before."""

from collections.abc import Generator
from importlib.util import find_spec

import pytest

# Every test here has the mark `peers`: where PyTorch is missing, none of them is selected, nor could be imported.
collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


@pytest.fixture(autouse=True, scope="package")
def sweeps_are_those_of_all_tests() -> Generator[None]:
    """TorchDynamo sweeps young objects after each compile. Tests keep two million of them (`tests/conftest.py`): the
    more a process holds, the longer each of these sweeps takes."""
    torch = pytest.importorskip("torch")
    with torch._dynamo.config.patch(run_gc_after_compile=False):
        yield


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Generator[None]:
    """Forgets graphs and counters, before and after."""
    torch = pytest.importorskip("torch")
    from aicf.pytorch import registry

    torch._dynamo.reset()
    registry._graphs.clear()  # graphs of earlier tests that wait for the garbage collector
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
