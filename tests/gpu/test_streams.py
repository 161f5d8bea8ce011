"""Streams, graphs, allocators and devices of PyTorch around compiled programs."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf import runtime
from aicf.compilation.compiled import CompiledModel
from aicf.errors import BackendUnavailable

torch = pytest.importorskip("torch")
torch_memory = pytest.importorskip("aicf.pytorch.allocator").use_torch_memory

pytestmark = pytest.mark.gpu

RNG = np.random.default_rng(73)
ROWS, WIDTH = 64, 128


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    """y = relu(x w) + x."""
    graph = aicf.Graph("residual")
    x, w = graph.input("x", (ROWS, WIDTH)), graph.param("w", (WIDTH, WIDTH))
    graph.output(graph.add(graph.relu(graph.matmul(x, w)), x), "y")
    weights = {"w": RNG.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 11}
    return aicf.compile(graph, weights, "cuda")


def wanted(model: CompiledModel, x: torch.Tensor) -> torch.Tensor:
    x, w = x.double().cpu(), torch.from_numpy(np.array(model.weights["w"])).double()
    return torch.relu(x @ w) + x


def assert_close(model: CompiledModel, x: torch.Tensor, y: torch.Tensor) -> None:
    torch.testing.assert_close(y.cpu().double(), wanted(model, x), rtol=1e-3, atol=1e-3)


def test_replays_take_their_place_in_a_stream_of_pytorch(model: CompiledModel) -> None:
    x, y = (torch.zeros(ROWS, WIDTH, device="cuda") for _ in range(2))
    bound, stream = model.bind(x=x, y=y), torch.cuda.Stream()
    for _ in range(20):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            x.normal_()
            bound.replay(stream=stream)
            found = y * 1
        stream.synchronize()
        assert_close(model, x, found)


def test_replays_become_a_part_of_a_graph_of_pytorch(model: CompiledModel) -> None:
    """Also the first replay of all, before which nothing has run."""
    x, y = (torch.zeros(ROWS, WIDTH, device="cuda") for _ in range(2))
    bound, graph = model.bind(x=x, y=y), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = x * 2
        bound.replay(stream=torch.cuda.current_stream())
        found = y + doubled
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert_close(model, x, found - 2 * x)


def test_streams_of_ours_have_priorities_and_events(model: CompiledModel) -> None:
    x, y = (torch.randn(ROWS, WIDTH, device="cuda") for _ in range(2))
    torch.cuda.synchronize()
    stream, bound = runtime.Stream("cuda", priority=-1), model.bind(x=x, y=y)
    before = stream.record()
    after = stream.submit(bound, 100)
    assert isinstance(before, runtime.DeviceEvent) and isinstance(after, runtime.DeviceEvent)
    assert 50 < after.microseconds_since(before) < 1e6 and after.is_done
    assert torch.cuda.ExternalStream(stream.handle).priority == -1
    assert_close(model, x, y)


def test_memory_comes_from_pytorch(model: CompiledModel) -> None:
    before, held = torch.cuda.memory_allocated(), runtime.pool().live_bytes
    torch_memory()
    try:
        exe = model.to("cuda:0")
        x = torch.randn(ROWS, WIDTH)
        assert_close(model, x, torch.from_numpy(exe(x.numpy())))
        assert torch.cuda.memory_allocated() - before >= runtime.pool().live_bytes - held > 0
        del exe
    finally:
        runtime.pool().use(None)


def test_pinned_arrays_are_pinned() -> None:
    torch.cuda.init()  # PyTorch calls no memory pinned before
    array = runtime.pinned((3, 5), "f16")
    assert torch.from_numpy(array).is_pinned() and not array.any()


def test_memory_that_is_short_is_told_who_holds_it(model: CompiledModel) -> None:
    model(np.zeros((ROWS, WIDTH), np.float32))
    with pytest.raises(BackendUnavailable, match=r"this process holds, in bytes: .*@residual"):
        runtime.pool().allocate(1 << 50, "a test")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_programs_run_on_the_second_gpu(model: CompiledModel) -> None:
    exe = model.to("cuda:1")
    x, y = (torch.randn(ROWS, WIDTH, device="cuda:1") for _ in range(2))
    bound = exe.bind(x=x, y=y)
    for _ in range(3):
        bound.replay(stream=torch.cuda.current_stream(1))
    torch.cuda.synchronize(1)
    assert_close(model, x, y)
    layer = torch.nn.Linear(WIDTH, 16).cuda(1)
    compiled = torch.compile(layer, backend=aicf.pytorch.aicf_backend, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-3, atol=1e-3)


def test_a_trace_has_the_kernels_of_each_instruction(model: CompiledModel) -> None:
    """By CUPTI's records where the system allows them, else by events; the method is told."""
    trace = model.trace(np.zeros((ROWS, WIDTH), np.float32), repeats=3)
    print(trace.method)
    assert {span.launch for span in trace.spans} == set(range(len(trace.instructions)))
    assert all(0.3 < span.duration_us < 1e4 for span in trace.spans)
    if trace.method == "records of the device":
        assert all(span.symbol and span.track.startswith("stream ") for span in trace.spans)
