"""Every test of the backend begins without what TorchDynamo traced before."""

from collections.abc import Generator
from importlib.util import find_spec

import pytest

# Every test here has the mark `peers`: where PyTorch is missing, none of them is selected, nor could be imported.
collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


@pytest.fixture(autouse=True, scope="package")
def composite_ops_are_looked_up_once() -> Generator[None]:
    """Each export looks up PyTorch's thousand composite ops once per namespace of ops, a fifteenth of the time of the
    tests. What was looked up stays there; ops that come later are looked up as well."""
    utils = pytest.importorskip("torch._export.utils")
    torch, look_up = pytest.importorskip("torch"), utils._materialize_cpp_cia_ops
    known: set[str] = set()

    def look_up_new() -> None:
        ops = set(torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
        if not ops <= known:
            look_up()
            known.update(ops)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_materialize_cpp_cia_ops", look_up_new)
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
