"""Captured programs node by node: edges, parameters, tensor maps, library calls, single instructions. Without a GPU."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block

from aicf import runtime
from aicf.backends import base
from aicf.backends.cuda.compiler import build
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, LibraryCall
from aicf.backends.cuda.runtime import library as libraries
from aicf.backends.cuda.runtime import loader
from aicf.backends.cuda.runtime.device_program import (
    Address,
    Dependency,
    DeviceProgram,
    KernelNode,
    LibraryNode,
    Scalar,
    Table,
    TensorMap,
)
from aicf.backends.cuda.runtime.driver import RELAXED, GraphEdge
from aicf.backends.cuda.target import ARCHES
from aicf.backends.native import DeviceGraph
from aicf.dialects.emit import ProgramOp
from aicf.errors import AicfError, CaptureError, PlanError
from tests.backends.cuda.device_programs import cuda_code, device_executable
from tests.backends.cuda.fake_driver import FakeDriver, Kernel
from tests.runtime.support import ADD_RELU, random

COUNT = 8
MAP = TensorMap(1, 0, "f32", (COUNT,), (), (COUNT,), 0, 256, 0, "zeros")


def floats(address: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(address))


def node(name: str, order: str, *after: Dependency, **parts: Any) -> KernelNode:
    fields = {"addresses": (), "maps": (), "scalars": (), "tables": (), **parts}
    sizes = ((2, 1, 1), (32, 1, 1), parts.pop("cluster", (1, 1, 1)), parts.pop("shared", 0))
    arguments = (fields["addresses"], fields["maps"], fields["scalars"])
    return KernelNode(name, name, *sizes, *arguments, order, tuple(after), fields["tables"])


def plus_one(arguments: list[int]) -> None:
    """out = in + 1."""
    source, target = arguments
    floats(target)[:] = floats(source) + 1


def through_map(arguments: list[int]) -> None:
    """out = tensor of the map * 2; the fake descriptor holds its address."""
    descriptor, target = arguments[:2]
    source = int.from_bytes(ctypes.string_at(descriptor, 8), "little")
    floats(target)[:] = floats(source) * 2


class FakeLibrary:
    """A library whose call adds its two operands into a third."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.open = 0
        self.found = "1.2.3"
        self.prepared: list[str] = []
        self.closed_in: list[int] = []

    def version(self) -> str:
        return self.found

    def open_handle(self) -> int:
        self.open += 1
        return 5

    def close_handle(self, handle: int) -> None:
        assert handle == 5
        self.open -= 1
        self.closed_in.append(self.driver.named("exchange_capture_mode")[-1])

    def prepare(self, handle: int, node: LibraryNode) -> None:
        assert handle == 5
        self.prepared.append(node.name)

    def call(self, handle: int, node: LibraryNode, addresses: tuple[int, ...], stream: int) -> None:
        a, b, c = addresses

        def add() -> None:
            floats(c)[:] = floats(a) + floats(b)

        self.driver.library_call(stream, add)


@pytest.fixture
def library(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary(gpu)
    monkeypatch.setattr(libraries, "import_module", lambda name: fake)
    return fake


class Captured:
    """A hand-made program on four blocks of memory: arena, x, y, z."""

    def __init__(self, gpu: FakeDriver, kernels: dict[str, Kernel], *nodes: KernelNode | LibraryNode) -> None:
        gpu.kernels.update(kernels)
        order = "".join("k" if isinstance(node, KernelNode) else "l" for node in nodes)
        program = DeviceProgram(
            "entry",
            4,
            tuple(node for node in nodes if isinstance(node, KernelNode)),
            tuple(node for node in nodes if isinstance(node, LibraryNode)),
            order,
        )
        native = cuda_code([program])
        self.code = loader.load_native(native)
        self.memory = self.code.memory
        self.stream = self.memory.open_stream()
        self.table = [self.memory.allocate(4 * COUNT) for _ in range(4)]
        for address in self.table:
            floats(address)[:] = np.random.default_rng(address).standard_normal(COUNT)
        self.descriptors = self.memory.allocate(max(native.reserves["entry"], 1))
        self.graph: DeviceGraph = self.code.capture("entry", self.table, self.descriptors, self.stream)

    def at(self, index: int) -> np.ndarray:
        """The values of a block."""
        return floats(self.table[index])

    def run(self) -> None:
        self.graph.launch()
        self.memory.synchronize(self.stream)


def test_edges_are_those_of_the_program(gpu: FakeDriver) -> None:
    """Full and programmatic ones, and none besides; a full edge beats a programmatic one to the same node."""
    steps = (Address(1, 0), Address(2, 0))
    program = Captured(
        gpu,
        {"a": plus_one, "b": plus_one, "c": plus_one},
        node("a", "aa", addresses=steps),
        node("b", "aa", Dependency(0, True), addresses=steps),
        node("c", "aa", Dependency(1, True), Dependency(0), Dependency(0, True), addresses=steps),
    )
    added = dict(gpu.named("add_kernel"))
    nodes = {
        handle: gpu.functions[n.kernel.function]
        for g in gpu.graphs.values()
        for handle, n in g.items()
        if n.kernel
    }
    edges = {name: {(nodes[edge.node], edge.programmatic) for edge in after} for name, after in added.items()}
    assert edges == {"a": set(), "b": {("a", True)}, "c": {("b", True), ("a", False)}}
    before = program.at(1).copy()
    program.run()
    np.testing.assert_array_equal(program.at(2), before + 1)


def test_arguments_are_addresses_maps_and_numbers_in_order(gpu: FakeDriver) -> None:
    seen: list[list[int]] = []
    program = Captured(
        gpu,
        {"k": seen.append},
        node(
            "k",
            "sams",
            addresses=(Address(0, 12),),
            maps=(MAP,),
            scalars=(Scalar("i32", -3), Scalar("i64", 1 << 40)),
        ),
    )
    program.run()
    assert seen == [[-3, program.table[0] + 12, program.descriptors, 1 << 40]]


def test_a_bound_address_changes_only_the_nodes_that_use_it(gpu: FakeDriver) -> None:
    """Two nodes; only one reads entry 1. Its parameters change in place, nothing is captured again."""
    program = Captured(
        gpu,
        {"a": plus_one, "b": plus_one},
        node("a", "aa", addresses=(Address(1, 0), Address(0, 0))),
        node("b", "aa", Dependency(0), addresses=(Address(0, 0), Address(2, 0))),
    )
    other = program.memory.allocate(4 * COUNT)
    floats(other)[:] = random(np.random.default_rng(1), COUNT)
    gpu.calls.clear()
    program.graph.set_pointers({1: other, 2: program.table[2]})
    assert gpu.named("set_kernel") == ["a"] and not gpu.named("new_graph")
    program.run()
    np.testing.assert_array_equal(program.at(2), floats(other) + 1 + 1)


def test_tensor_maps_are_encoded_once_and_again_for_a_new_address(gpu: FakeDriver) -> None:
    """Equal maps share a descriptor; a new address is written after the replays that are queued."""
    program = Captured(
        gpu,
        {"a": through_map, "b": through_map},
        node("a", "ma", maps=(MAP,), addresses=(Address(2, 0),)),
        node("b", "ma", Dependency(0), maps=(MAP,), addresses=(Address(3, 0),)),
    )
    assert len(gpu.named("encode")) == 1
    other = program.memory.allocate(4 * COUNT)
    floats(other)[:] = random(np.random.default_rng(2), COUNT)
    first = program.at(1) * 2
    program.graph.launch()
    program.graph.set_pointers({1: other})
    assert not gpu.named("set_kernel") and len(gpu.named("encode")) == 2
    program.memory.synchronize(program.stream)
    np.testing.assert_array_equal(program.at(3), first)
    program.run()
    for index in (2, 3):
        np.testing.assert_array_equal(program.at(index), floats(other) * 2)


def by_table(arguments: list[int]) -> None:
    """Adds a number of the table to the block that it names next, into the last one."""
    number, source, target = (ctypes.c_uint64 * 3).from_address(arguments[-1])
    floats(target)[:] = floats(source) + number


def test_tables_lie_after_the_maps_and_are_written_again_for_a_new_address(gpu: FakeDriver) -> None:
    """One table of two nodes, another of a third: numbers first, then addresses, written after what is queued."""
    table, other_table = (Table((9,), (Address(1, 0), Address(base, 0))) for base in (2, 3))
    program = Captured(
        gpu,
        {"a": through_map, "b": by_table, "c": by_table},
        node("a", "ma", maps=(MAP,), addresses=(Address(0, 0),)),
        node("b", "t", Dependency(0), tables=(table,)),
        node("c", "at", Dependency(1), addresses=(Address(0, 0),), tables=(other_table,)),
    )
    assert table.nbytes == 24 and program.graph is not None
    first = program.at(1) + 9
    other = program.memory.allocate(4 * COUNT)
    floats(other)[:] = random(np.random.default_rng(3), COUNT)
    program.graph.launch()
    program.graph.set_pointers({1: other})
    assert not gpu.named("set_kernel")
    program.memory.synchronize(program.stream)
    np.testing.assert_array_equal(program.at(2), first)
    program.run()
    for index in (2, 3):
        np.testing.assert_array_equal(program.at(index), floats(other) + 9)


def test_a_tensor_map_needs_sixteen_bytes(gpu: FakeDriver) -> None:
    program = Captured(gpu, {"a": through_map}, node("a", "ma", maps=(MAP,), addresses=(Address(2, 0),)))
    with pytest.raises(CaptureError, match="instruction 'a' copies a tensor at 0x.* needs a multiple of 16"):
        program.graph.set_pointers({1: program.table[1] + 4})


ADD = LibraryNode(
    "add", "cublasLt.matmul", "1.2.3", {}, (Address(1, 0), Address(2, 0), Address(3, 0)), (Dependency(0),)
)


def test_library_calls_are_captured_with_full_edges(gpu: FakeDriver, library: FakeLibrary) -> None:
    """Between the nodes that they depend on; what follows waits for what they queued."""
    program = Captured(
        gpu,
        {"a": plus_one, "b": plus_one},
        node("a", "aa", addresses=(Address(1, 0), Address(2, 0))),
        ADD,
        node("b", "aa", Dependency(1), addresses=(Address(3, 0), Address(0, 0))),
    )
    assert library.prepared == ["add"]
    (captured,), (_, after_b) = gpu.named("capture"), gpu.named("add_kernel")[1]
    (graph,) = gpu.graphs.values()
    kinds = {handle: "call" if node.work else "kernel" for handle, node in graph.items()}
    assert [kinds[handle] for handle in captured] == ["kernel"]
    assert [(kinds[edge.node], edge.programmatic) for edge in after_b] == [("call", False)]
    for _ in range(5):
        program.run()
        np.testing.assert_array_equal(program.at(0), program.at(1) + (program.at(1) + 1) + 1)


@pytest.mark.parametrize("calls", ["first", "second"])
def test_an_early_start_at_a_library_call_is_refused(calls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing makes a full edge of it: the plan would not be what runs."""
    own = KernelLaunch(KernelCode("k", "", (), 32), (), (1, 1, 1), (32, 1, 1))
    parts = {calls: LibraryCall("cublasLt.matmul", "1.2.3", {}, ())}
    monkeypatch.setattr(build, "emitter", lambda kernel: lambda launch: [parts.get(launch.name, own)])
    fields = ((), (), (), Block(), None)
    launches = [
        base.Launch("first", "relu", "k", {}, *fields, ()),
        base.Launch("second", "relu", "k", {}, *fields, ("first",), ("first",)),
    ]
    unit = base.CodeUnit("entry", ProgramOp("p"), tuple(launches), 1)
    with pytest.raises(PlanError, match="instruction 'second' starts before 'first' ends, .* write after"):
        build.build_module([unit], ARCHES["sm_90a"])


def test_a_library_call_that_queues_nothing_is_refused(
    gpu: FakeDriver, library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows it would wait for what is before it, or for nothing."""
    monkeypatch.setattr(library, "call", lambda *arguments: None)
    first = node("a", "aa", addresses=(Address(1, 0), Address(2, 0)))
    for nodes in ((first, ADD), (replace(ADD, after=()),)):
        with pytest.raises(CaptureError, match=r"instruction 'add' .* cublasLt\.matmul queued nothing"):
            Captured(gpu, {"a": plus_one}, *nodes)
    assert not gpu.graphs


def test_an_address_inside_a_library_call_does_not_change(gpu: FakeDriver, library: FakeLibrary) -> None:
    """The plan stages it; the graph is captured once."""
    program = Captured(gpu, {"a": plus_one}, node("a", "aa", addresses=(Address(1, 0), Address(2, 0))), ADD)
    program.graph.set_pointers({1: program.table[1], 0: 1 << 20})
    with pytest.raises(
        CaptureError, match="instruction 'add' has an address inside that is to change; stage"
    ):
        program.graph.set_pointers({1: program.table[1] + 16})
    program.run()
    np.testing.assert_array_equal(program.at(3), program.at(1) + (program.at(1) + 1))
    assert len(gpu.named("new_graph")) == 1


def test_a_change_that_fails_is_made_up_for(gpu: FakeDriver) -> None:
    """Of two kernels one is pointed there, the other is not; the next time both are."""
    both = [node(name, "aa", addresses=(Address(1, 0), Address(2 + at, 0))) for at, name in enumerate("ab")]
    program = Captured(gpu, {"a": plus_one, "b": plus_one}, *both)
    other = program.memory.allocate(4 * COUNT)
    floats(other)[:] = random(np.random.default_rng(3), COUNT)
    gpu.fail_at = len(gpu.calls) + 3
    with pytest.raises(AicfError, match="set_kernel failed"):
        program.graph.set_pointers({1: other})
    program.graph.set_pointers({1: other})
    program.run()
    for index in (2, 3):
        np.testing.assert_array_equal(program.at(index), floats(other) + 1)


def test_libraries_are_closed_with_the_code(gpu: FakeDriver, library: FakeLibrary) -> None:
    program = Captured(gpu, {"a": plus_one}, node("a", "aa", addresses=(Address(1, 0), Address(2, 0))), ADD)
    assert library.open == 1
    code = program.code
    del program
    assert library.open == 1
    del code
    assert library.open == 0 and not gpu.modules and gpu.contexts == 0
    # The thread may be in the middle of another capture, which what a library frees shall not end.
    assert library.closed_in == [RELAXED] and gpu.named("exchange_capture_mode")[-1] == 0


def test_eager_runs_give_what_replays_give(gpu: FakeDriver, library: FakeLibrary) -> None:
    """Each node alone, in program order, with a wait after each."""
    program = Captured(gpu, {"a": plus_one}, node("a", "aa", addresses=(Address(1, 0), Address(2, 0))), ADD)
    program.run()
    replayed = [program.at(index).copy() for index in range(4)]
    for index in (2, 3):
        program.at(index)[:] = np.nan
    names: list[str] = []

    def around(name: str) -> Any:
        names.append(name)
        return _nothing()

    gpu.calls.clear()
    program.graph.run_eagerly(around)
    assert names == ["a", "add"] and len(gpu.named("synchronize")) == 2 and not gpu.named("launch")
    for index in range(4):
        np.testing.assert_array_equal(program.at(index), replayed[index])


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_times_come_from_events_between_instructions(gpu: FakeDriver) -> None:
    """A graph of its own, all nodes in a row; an instruction of several nodes is one; nothing of it is left."""
    steps = (Address(1, 0), Address(2, 0))
    program = Captured(
        gpu,
        {"a": plus_one, "b": plus_one},
        node("a", "aa", addresses=steps),
        node("b", "aa", Dependency(0), addresses=steps),
    )
    gpu.calls.clear()
    samples = program.graph.instruction_times(3)
    assert samples == [[4.0, 4.0, 4.0]] * 3
    after = [edge for _, edges in gpu.named("add_kernel") for edge in edges]
    assert len(gpu.named("add_event")) == 4 and after and GraphEdge not in after
    assert len(gpu.named("open_event")) == len(gpu.named("close_event")) == 4
    assert len(gpu.graphs) == len(gpu.executables) == 1


def test_profiles_join_device_times_to_sources(gpu: FakeDriver) -> None:
    """The time of the empty gap is taken off."""
    exe = device_executable(gpu, ADD_RELU, {"b": random(np.random.default_rng(4), 6)})
    profile = runtime.Profiler(exe).measure(random(np.random.default_rng(5), 4, 6), repeats=3)
    assert [(row.name, row.src, row.median_us) for row in profile.instructions] == [
        ("sum", ("sum",), 0.0),
        ("act", ("act", "relu"), 0.0),
        ("twice", ("twice",), 0.0),
    ]
    assert profile.replay_us > 0


def test_ranges_name_programs_and_instructions(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVTX sees calls and replays by program, and a checked run by instruction; outside nothing."""
    import sys

    seen: list[str] = []

    def annotate(name: str, domain: str) -> Any:
        seen.append(f"{domain}/{name}")
        return _nothing()

    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(annotate=annotate))
    exe = device_executable(gpu, ADD_RELU, {"b": random(np.random.default_rng(4), 6)})
    x = random(np.random.default_rng(5), 4, 6)
    bound = exe.bind(x=x)
    exe(x)
    bound.replay()
    with runtime.nvtx_ranges():
        exe(x)
        bound.replay(2)
        bound.check()
    bound.replay()
    assert seen == ["aicf/add_relu"] * 3 + ["aicf/sum", "aicf/act", "aicf/twice"]
