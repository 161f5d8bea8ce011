"""Plans read from emit IR: places, blockers, and their stored form."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicf.backends.native import NativeCode
from aicf.errors import ArtifactError, InputMismatch, PlanError
from aicf.runtime import Executable, ModulePlan
from aicf.runtime.capture_plan import OperandRef, Row
from aicf.runtime.plan_from_ir import code_units, entry_symbol, programs_of, read_module
from aicf.support.dataclass_json import to_json_value
from tests.runtime.support import ADD_RELU, BUCKETS, COUNTER, module_of, read_plan
from tests.support.topological_orders import is_graph_order, random_graph_order


def plan_of(text: str) -> ModulePlan:
    return read_module(module_of(text))


def test_operands_are_table_entry_plus_byte_offset() -> None:
    (program,) = plan_of(ADD_RELU).programs
    first, second, _ = program.launches
    assert first.ins == (
        OperandRef(1, 0, (4, 6), (6, 1), "f32", None),
        OperandRef(2, 0, (4, 6), (0, 1), "f32", None),
    )
    assert first.outs == second.ins == (OperandRef(0, 0, (4, 6), (6, 1), "f32", None),)
    assert second.outs[0].base == 3
    assert (program.arena_bytes, program.arena_align, program.table_size) == (128, 64, 5)
    assert [launch.stream for launch in program.launches] == [0, 0, 1]
    assert first.record == {"version": 1, "determinism": "bitwise"}


def test_views_add_up() -> None:
    text = ADD_RELU.replace(
        "%rows = emit.view %b offset(0) : !emit.buffer<6xf32, bound> to !emit.buffer<4x6xf32, bound, strides [0, 1]>",
        "%part = emit.view %b offset(1) : !emit.buffer<8xf32, bound> to !emit.buffer<7xf32, bound>\n"
        "%rows = emit.view %part offset(1) : !emit.buffer<7xf32, bound> to "
        "!emit.buffer<4x6xf32, bound, strides [0, 1]>",
    ).replace('"b" binding(direct) : !emit.buffer<6xf32', '"b" binding(direct) : !emit.buffer<8xf32')
    assert plan_of(text).programs[0].launches[0].ins[1].offset == 8


def test_graph_holds_boundary_and_order() -> None:
    graph = plan_of(ADD_RELU).programs[0].graph
    assert [bind.name for bind in graph.inputs] == ["x"]
    assert [bind.name for bind in graph.outputs] == ["y", "z"]
    assert [bind.name for bind in graph.weights] == ["b"]
    assert [node.name for node in graph.nodes] == ["sum", "act", "twice"]
    assert graph.nodes[1].src == ("act", "relu") and not graph.is_stateful


def test_orders_follow_the_edges() -> None:
    graph = plan_of(ADD_RELU).programs[0].graph
    assert {random_graph_order(graph, seed) for seed in range(20)} == {
        ("sum", "act", "twice"),
        ("sum", "twice", "act"),
    }
    assert is_graph_order(graph, ["sum", "twice", "act"])
    assert not is_graph_order(graph, ["act", "sum", "twice"])
    assert not is_graph_order(graph, ["sum", "act"])
    assert not is_graph_order(graph, ["sum", "sum", "act"])


def test_dispatch_table_and_prepare() -> None:
    plan = plan_of(BUCKETS)
    assert plan.dims == ("N",)
    assert plan.rows == (Row((1,), "scale@N=1"), Row((5,), "scale@N=5"))
    assert plan.prepare is not None
    assert plan.prepare.graph.with_role("derived")[0].nbytes == 64
    assert [bind.name for bind in plan.weights] == ["w"]
    assert plan.programs[0].graph.with_role("const")[0].value == "0000803f00000040"


def test_state_is_seen() -> None:
    plan = plan_of(COUNTER)
    assert plan.is_stateful and plan.weights[0].updated


def test_units_match_the_plan() -> None:
    module = module_of(BUCKETS)
    units = {unit.entry: unit for unit in code_units(module)}
    plan = read_module(module)
    assert set(units) == {entry_symbol(program) for program in programs_of(module)}
    for program in plan.programs:
        unit = units[program.entry]
        assert unit.table_size == program.table_size
        assert [launch.name for launch in unit.launches] == [launch.name for launch in program.launches]
        assert unit.launches[1].ins[1].layout is not None


def test_entry_symbols_differ_and_link() -> None:
    names = [entry_symbol(program) for program in programs_of(module_of(BUCKETS))]
    assert len(set(names)) == 3
    assert all(name.isascii() and name.isidentifier() for name in names)


BLOCKERS = [
    (
        'phase = "final"',
        'phase = "planned"',
        "@add_relu is in phase 'planned', only 'final' runs: go on up to plan-capture",
    ),
    (", arena_bytes = 128 : i64", "", "@add_relu: arena_bytes is missing: run plan-memory"),
    ("offset(0) size(96) align(64)", "", "slot %h has no offset: run plan-memory"),
    ("size(96)", "size(64)", "slot %h has 64 bytes and needs 96: run plan-memory again"),
    (
        "offset(0) size(96)",
        "offset(64) size(96)",
        "slot %h ends at 160, the arena at 128: run plan-memory again",
    ),
    (
        "offset(0) size(96)",
        "offset(8) size(96)",
        "slot %h at 8 breaks its alignment of 64: run plan-memory again",
    ),
    (
        "body(@act.body)",
        "body(@gone)",
        "instruction 'act': body @gone is no emit.body of this module: define it",
    ),
    ("body(@act.body)", "", "instruction 'act' has no body: give body(@symbol) of an emit.body"),
    (
        '"reference.body"',
        '"reference.bodi"',
        "reference has no kernel 'reference.bodi'; it has reference.body: run select-kernels",
    ),
    (
        "version = 1",
        "version = 7",
        "'reference.body' is version 1 here, the record has 7: run select-kernels again",
    ),
    ('"sum" full', '"gone" full', "instruction 'act' waits for the unknown 'gone': name one of this program"),
    (
        '"sum" full',
        '"twice" full',
        "instruction 'act' stands before 'twice' and waits for it: order the text by edges",
    ),
    (' "x" binding(direct)', ' "x"', "input 'x' has no binding: run lower-to-emit, or write binding(direct)"),
    ("outs(%y", "outs(%z", "output 'y' is never written: add the instruction or drop the bind"),
]


@pytest.mark.parametrize(("old", "new", "message"), BLOCKERS)
def test_blockers_name_their_fix(old: str, new: str, message: str) -> None:
    assert old in ADD_RELU
    with pytest.raises(PlanError) as error:
        plan_of(ADD_RELU.replace(old, new, 1) if "kernel" not in message else ADD_RELU.replace(old, new))
    assert message in error.value.message


def test_a_host_does_not_stage() -> None:
    """There is no memory to stage in: callers' arrays are used where they are."""
    text = ADD_RELU.replace('input "x" binding(direct)', 'input "x" binding(staged)')
    with pytest.raises(
        PlanError, match="input 'x' is staged, but reference uses callers' memory where it is"
    ):
        read_module(module_of(text))


def test_a_missing_record_is_a_blocker() -> None:
    kernel = 'kernel("reference.body", {version = 1 : i64, determinism = "bitwise"})'
    with pytest.raises(PlanError, match="instruction 'sum' has no kernel record: run select-kernels"):
        plan_of(ADD_RELU.replace(kernel, "", 1))


def test_all_blockers_come_at_once() -> None:
    text = ADD_RELU.replace("offset(0) size(96) align(64)", "").replace("body(@act.body)", "body(@gone)")
    with pytest.raises(PlanError) as error:
        plan_of(text.replace('"reference.body"', '"other"'))
    message = error.value.message
    assert message.startswith("5 blockers to capture: (1) @add_relu: slot %h")
    assert "(5) " in message and "(6) " not in message and "\n" not in message


def test_several_programs_need_a_dispatch_table() -> None:
    text = "\n".join(line for line in BUCKETS.splitlines() if "logical.dispatch" not in line)
    with pytest.raises(PlanError, match="one program runs unless logical.dispatch names several; found"):
        plan_of(text)


def test_derived_binds_need_prepare() -> None:
    text = BUCKETS.replace('derived "w.half"', 'derived "w.third"', 1)
    with pytest.raises(
        PlanError, match="@scale@N=1: derived 'w.half' is not made by @prepare; run lower-to-emit"
    ):
        plan_of(text)
    text = BUCKETS.replace("bytes = 64", "bytes = 128").replace("bytes = 128", "bytes = 64", 2)
    with pytest.raises(
        PlanError, match="derived 'w.half' has another type than in @prepare; make them equal"
    ):
        plan_of(text)


def test_a_module_without_target_is_refused() -> None:
    text = ADD_RELU.replace("attributes {aicf.target", "attributes {aicf.other")
    with pytest.raises(PlanError, match="the module has no target; run set-target"):
        plan_of(text)


# The stored form


@pytest.mark.parametrize("text", [ADD_RELU, COUNTER, BUCKETS])
def test_json_gives_the_same_plan_back(text: str) -> None:
    plan = plan_of(text)
    assert read_plan(json.loads(json.dumps(to_json_value(plan)))) == plan


def test_damaged_json_is_named() -> None:
    stored = to_json_value(plan_of(ADD_RELU))
    del stored["programs"][0]["graph"]["binds"][0]["dtype"]
    with pytest.raises(ArtifactError, match=r"plan.programs\[0\].graph.binds\[0\] lacks field 'dtype'"):
        read_plan(stored)
    stored = to_json_value(plan_of(ADD_RELU))
    stored["programs"][0]["launches"][0]["ins"][0]["base"] = 9
    with pytest.raises(ArtifactError, match="launch 'sum' has an operand outside the pointer table"):
        read_plan(stored)
    stored = to_json_value(plan_of(ADD_RELU))
    stored["programs"][0]["graph"]["binds"][0]["nbytes"] = 4
    with pytest.raises(ArtifactError, match="bind 'x' is too short"):
        read_plan(stored)


OPERANDS = [
    ("strides", [6], "launch 'sum' has an operand of sizes [4, 6] and strides [6]"),
    ("shape", [4], "launch 'sum' has an operand of sizes [4] and strides [6, 1]"),
    ("shape", [-4, 6], "launch 'sum' has an operand of sizes [-4, 6] and strides [6, 1]"),
    ("dtype", "f31", "launch 'sum' has an operand of the unknown element type 'f31'"),
    ("offset", -4, "launch 'sum' has an operand outside its buffer"),
    ("offset", 4, "launch 'sum' has an operand outside its buffer"),
    ("strides", [7, 1], "launch 'sum' has an operand outside its buffer"),
    ("strides", [-6, 1], "launch 'sum' has an operand outside its buffer"),
]


@pytest.mark.parametrize(("field", "value", "message"), OPERANDS)
def test_operands_of_a_stored_plan(field: str, value: Any, message: str) -> None:
    stored = to_json_value(plan_of(ADD_RELU))
    stored["programs"][0]["launches"][0]["ins"][0][field] = value
    with pytest.raises(ArtifactError) as error:
        read_plan(stored)
    assert message in error.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 1 << 40) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_damage_gives_another_error(data: st.DataObject) -> None:
    stored: Any = plan_of_buckets()
    node: Any = stored
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        inner = node[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 3)) == 0:
            node[key] = data.draw(JSON)
            break
        node = inner
    with contextlib.suppress(ArtifactError, InputMismatch):
        plan = read_plan(stored)
        small = all(bind.nbytes < 1 << 20 for program in plan.programs for bind in program.graph.binds)
        if small and plan.backend == "reference":
            assert Executable(dataclasses.replace(plan, prepare=None), NativeCode(b"", ()), {"w": W})


STORED = json.dumps(to_json_value(read_module(module_of(BUCKETS))))


W = np.ones(2, np.float32)


def plan_of_buckets() -> Any:
    return json.loads(STORED)


CONTRADICTIONS = [
    ("role", "foo", "bind 'x' has the unknown role 'foo'"),
    ("name", "m", "two binds have one name"),
    ("name", "z", "@scale@N=5 and @scale@N=1 have other inputs; run specialize-shapes again"),
    ("shape", [5, 2], "two programs take inputs of the same shapes"),
]


@pytest.mark.parametrize(("field", "value", "message"), CONTRADICTIONS)
def test_contradictions_in_a_stored_plan(field: str, value: Any, message: str) -> None:
    stored = plan_of_buckets()
    for bind in stored["programs"][0]["graph"]["binds"][: 2 if field == "shape" else 1]:
        bind[field] = value
        bind["nbytes"] = 40
    with pytest.raises(ArtifactError) as error:
        read_plan(stored)
    assert message in error.value.message


def test_loading_imports_no_compiler() -> None:
    program = (
        "import sys, aicf.runtime, aicf.backends.registry\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('xdsl', 'numba', 'llvmlite', 'yaml')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
