"""What the driver sees of compiled models: plan topology, captured graphs, and replays that are one launch each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from aicf.backends.cuda.runtime import library
from aicf.backends.cuda.runtime.driver import GraphEdge
from aicf.backends.cuda.runtime.storage import read
from aicf.compilation.compiled import CompiledModel
from aicf.errors import PlanError
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import read_module
from tests.backends.cuda.device_tensor import DeviceTensor
from tests.backends.cuda.fake_driver import FakeDriver
from tests.backends.cuda.recorded_models import MODELS, SilentKernels, SilentLibrary, compiled
from tests.runtime.support import module_of

TOPOLOGIES = {
    "chain": """
        stream 0  up0    norm_gemm
        stream 0  down0  gemm_epilogue  <~ up0
        stream 0  up1    norm_gemm      <~ down0
        stream 0  down1  gemm_epilogue  <~ up1
    """,
    "diamond": """
        stream 0  stem        gemm
        stream 0  spread      generated  <~ stem
        stream 0  left        gemm       <~ spread
        stream 0  left_soft   generated  <~ left
        stream 1  right       gemm       <~ spread
        stream 1  right_soft  generated  <~ right
        stream 0  join        concat     <- left_soft, <- right_soft
    """,
    "branches": """
        stream 0  left0   gemm_epilogue
        stream 0  left1   gemm_epilogue  <~ left0
        stream 1  right0  gemm_epilogue
        stream 1  right1  gemm_epilogue  <~ right0
    """,
    "library_call": """
        stream 0  before   generated
        stream 0  product  gemm       <- before
        stream 0  after    generated  <- product
    """,
    "library_alone": """
        stream 0  product  gemm
        stream 0  beside   generated  <- product
    """,
    "bert_layer": """
        stream 0  query           gemm_multi
        stream 0  scores          attention      <~ query
        stream 0  mix             gemm_epilogue  <~ scores
        stream 0  attention_norm  generated      <~ mix
        stream 0  up              gemm_epilogue  <~ attention_norm
        stream 0  down            gemm_epilogue  <~ up
        stream 0  output_norm     generated      <~ down
    """,
}
"""Instructions in launch order with their streams, kinds and edges: `<-` full, `<~` programmatic."""


def topology(plan: CapturePlan) -> str:
    """A plan in the form of `TOPOLOGIES`."""
    rows = [
        (
            f"stream {launch.stream}",
            node.name,
            node.kind,
            ", ".join(_arrow(edge.source, edge.kind) for edge in node.after),
        )
        for node, launch in zip(plan.graph.nodes, plan.launches, strict=True)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _arrow(source: str, kind: str) -> str:
    return f"{'<~' if kind == 'programmatic' else '<-'} {source}"


def dedented(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.fixture
def gpu(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """With kernels and a library that do nothing."""
    gpu.kernels = SilentKernels()
    monkeypatch.setattr(library, "import_module", lambda name: SilentLibrary(gpu))
    return gpu


@pytest.fixture(params=list(MODELS))
def exe(request: pytest.FixtureRequest) -> CompiledModel:
    return compiled(request.param)


def inputs(exe: CompiledModel, seed: int) -> dict[str, np.ndarray]:
    """Random numbers; the first seeds give NaN, infinity and zero instead."""
    random = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}
    for spec in exe.inputs:
        shape = [size for size in spec.shape if isinstance(size, int)]
        made[spec.name] = random.standard_normal(shape).astype(np.float16)
        if seed < 3:
            made[spec.name][...] = (np.nan, np.inf, 0)[seed]
    return made


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_topology(name: str) -> None:
    """Nodes, order, streams, edges and their kinds; a change here is a change of what runs."""
    (plan,) = compiled(name).plan.programs
    assert topology(plan) == dedented(TOPOLOGIES[name])


def test_the_captured_graph_has_the_edges_of_the_plan(exe: CompiledModel, gpu: FakeDriver) -> None:
    """An instruction's first node waits for the last of its sources, early if the plan says so; the rest in a row."""
    bound = exe.instantiate()
    bound.fill(inputs(exe, 3))
    bound.replay()
    (graph,) = gpu.graphs.values()
    (plan,) = exe.plan.programs
    (program,) = (each for each in read(exe.native.code)[0].programs if each.entry == plan.entry)
    after = {node.name: node.after for node in plan.graph.nodes}
    ends = dict[str, int]()
    for handle, node in zip(graph, program.nodes(), strict=True):
        if node.name in ends:
            (edge,) = graph[handle].after
            assert edge.node == ends[node.name]
        else:
            wanted = {GraphEdge(ends[edge.source], edge.kind == "programmatic") for edge in after[node.name]}
            assert set(graph[handle].after) == wanted
        ends[node.name] = handle
    assert list(ends) == list(after)


def test_a_replay_is_one_launch_whatever_the_values(exe: CompiledModel, gpu: FakeDriver) -> None:
    """No allocation, no wait, no other call: the driver cannot tell one replay from another."""
    bound = exe.instantiate()
    bound.fill(inputs(exe, 3))
    bound.replay()
    before = (dict(gpu.sizes), dict(gpu.pinned), set(gpu.graphs), set(gpu.executables), set(gpu.queues))
    seen: set[Sequence[tuple[str, object]]] = set()
    for seed in range(6):
        bound.fill(inputs(exe, seed))
        bound.synchronize()
        gpu.calls.clear()
        bound.replay()
        seen.add(tuple(gpu.calls))
    ((call,),) = seen
    assert call[0] == "launch" and call[1] in gpu.executables
    after = (dict(gpu.sizes), dict(gpu.pinned), set(gpu.graphs), set(gpu.executables), set(gpu.queues))
    assert before == after


def test_calls_are_alike_whatever_the_values(exe: CompiledModel, gpu: FakeDriver) -> None:
    """A call besides copies its inputs and outputs and waits once; from the second on it allocates nothing."""
    exe(inputs(exe, 3))
    seen: set[Sequence[tuple[str, object]]] = set()
    for seed in range(5):
        gpu.calls.clear()
        exe(inputs(exe, seed))
        seen.add(tuple(call for call in gpu.calls if call[0] != "make_current"))
    (calls,) = seen
    assert [name for name, _ in calls] == ["upload", "launch", "download", "synchronize"]


def test_replays_in_a_row_are_launches_in_a_row(exe: CompiledModel, gpu: FakeDriver) -> None:
    bound = exe.instantiate()
    bound.fill(inputs(exe, 3))
    bound.replay()
    gpu.calls.clear()
    bound.replay(100)
    assert len(gpu.calls) == 100 and len(set(gpu.calls)) == 1 and gpu.calls[0][0] == "launch"


# Bindings


def test_a_library_call_stages_the_boundary_that_it_touches() -> None:
    """Everything else is direct, at the alignment that kernels need; IR, ledger, plan and explanation say it."""
    model = compiled("library_alone")
    (program,) = model.plan.programs
    bound = {
        bind.name: (bind.binding, bind.align) for bind in (*program.graph.inputs, *program.graph.outputs)
    }
    assert bound == {"x": ("staged", None), "y": ("staged", None), "z": ("direct", 16)}
    text = model.ir("emit")
    assert 'emit.bind input "x" binding(staged) :' in text
    assert 'emit.bind output "z" binding(direct) align(16) :' in text
    said = str(model.explain("x"))
    assert "bound staged: copied through 8,192 bytes of ours" in said
    assert "input 'x' is staged, because cuda.cublaslt embeds its address when the graph is captured" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"x" binding(staged)',
            '"x" binding(direct) align(16)',
            "input 'x' is direct, but 'product' embeds its address: write binding(staged)",
        ),
        (
            '"z" binding(direct) align(16)',
            '"z" binding(direct)',
            "output 'z' is direct at any address, cuda needs a multiple: write binding(direct) align(16)",
        ),
        (
            '"z" binding(direct) align(16)',
            '"z" binding(direct) align(8)',
            "output 'z' is direct at any address, cuda needs a multiple: write binding(direct) align(16)",
        ),
    ],
)
def test_a_binding_that_could_not_be_obeyed_is_a_blocker(old: str, new: str, message: str) -> None:
    text = compiled("library_alone").ir("emit")
    assert old in text
    with pytest.raises(PlanError) as error:
        read_module(module_of(text.replace(old, new)))
    assert error.value.message.endswith(message)


def test_what_the_plan_says_may_be_edited() -> None:
    """Staging costs a copy and is always legal."""
    text = (
        compiled("library_alone").ir("emit").replace('"z" binding(direct) align(16)', '"z" binding(staged)')
    )
    (program,) = read_module(module_of(text)).programs
    assert [bind.binding for bind in program.graph.outputs] == ["staged", "staged"]


def test_torch_tensors_at_a_staged_boundary(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies around the launch; the output that is direct is written where it is."""
    gpu.kernels = SilentKernels()
    monkeypatch.setattr(library, "import_module", lambda name: SilentLibrary(gpu))
    model = compiled("library_alone")
    arrays = {name: DeviceTensor(gpu, np.ones((64, 64), np.float16), offset=2) for name in "xy"}
    graph_exec = model.bind({**arrays, "z": DeviceTensor(gpu, np.ones((64, 64), np.float16))})
    graph_exec.replay()
    gpu.calls.clear()
    graph_exec.replay()
    assert [name for name, _ in gpu.calls if name != "make_current"] == ["copy", "launch", "copy"]
