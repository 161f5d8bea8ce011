"""Execution policies: their forms, errors that name the path and the legal values, and what each field does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import aicf
from aicf.errors import PolicyError
from aicf.frontends.text import make_context
from aicf.passes.emit.read_decisions import decisions_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from aicf.policies.execution_policy import BINDINGS, MEMORY, NEW_SHAPES, ORDERS, SAVES, ExecutionPolicy
from aicf.policies.policy import Policy
from aicf.runtime.plan_from_ir import read_module

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
policies = st.builds(
    ExecutionPolicy,
    streams=st.integers(0, 8),
    streams_of=st.dictionaries(names, st.integers(0, 8), max_size=3),
    bindings=st.dictionaries(names, st.sampled_from(BINDINGS), max_size=3),
    inplace=st.booleans(),
    memory=st.sampled_from(MEMORY),
    order=st.sampled_from(ORDERS),
    prepared_weights=st.booleans(),
    saves=st.dictionaries(names, st.sampled_from(SAVES), max_size=3),
    new_shapes=st.sampled_from(NEW_SHAPES),
    max_programs=st.integers(0, 8),
    max_bytes=st.integers(0, 1 << 40),
)


@given(policies)
def test_every_form_gives_the_same_policy_back(policy: ExecutionPolicy) -> None:
    assert ExecutionPolicy.from_json_value(policy.to_json_value()) == policy
    assert ExecutionPolicy.from_attr(policy.to_attr()) == policy.for_compile()


WRONG: list[tuple[str, str]] = [
    (
        "{stream: 2}",
        "stream: unknown field; did you mean 'streams' or 'streams_of'? legal: bindings, inplace, max_bytes, m",
    ),
    ("{streams: -1}", "streams: must be at least 0, got -1"),
    ("{streams: two}", 'streams: expected an integer, got "two"'),
    ("{streams: true}", "streams: expected an integer, got true"),
    ("{streams_of: {main: -2}}", "streams_of.main: must be at least 0, got -2"),
    ("{streams_of: [main]}", 'streams_of: expected an object, got ["main"]'),
    ("{bindings: {x: copied}}", "bindings.x: 'copied' is not legal; legal: direct, staged"),
    (
        "{saves: {a.save: kept}}",
        "saves.a.save: 'kept' is not legal; did you mean 'keep'? legal: keep, recompute",
    ),
    ("{inplace: 1}", "inplace: expected true or false, got 1"),
    (
        "{memory: seperate}",
        "memory: 'seperate' is not legal; did you mean 'separate'? legal: separate, shared",
    ),
    ("{order: txt}", "order: 'txt' is not legal; did you mean 'text'? legal: reuse, text"),
    ("{order: true}", "order: expected one of reuse, text, got true"),
    ("{prepared_weights: no way}", 'prepared_weights: expected true or false, got "no way"'),
    ("{new_shapes: never}", "new_shapes: 'never' is not legal; legal: compile, refuse"),
    ("{max_programs: -1}", "max_programs: must be at least 0, got -1"),
    ("{max_bytes: 1.5}", "max_bytes: expected an integer, got 1.5"),
    ("{version: 2}", "version: 2 is not known here; this release reads 1"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_errors_name_the_path(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        ExecutionPolicy.from_json_value(yaml.safe_load(text))
    assert error.value.message.startswith(message)


def test_programs_are_checked_where_they_are_known() -> None:
    policy = ExecutionPolicy(streams=3, streams_of={"main@N=1": 1})
    policy.check_programs(["main@N=1", "main@N=32"])
    assert [policy.streams_for(name) for name in ("main@N=1", "main@N=32")] == [1, 3]
    with pytest.raises(PolicyError) as error:
        policy.check_programs(["main"])
    assert (
        error.value.message
        == "streams_of.main@N=1: no program has that name; did you mean 'main'? it has: main"
    )


def test_what_is_left_when_all_is_decided() -> None:
    fields: dict[str, Any] = {
        "inplace": False,
        "memory": "separate",
        "order": "text",
        "prepared_weights": False,
    }
    assert ExecutionPolicy(streams=2, **fields).bounds() == fields
    assert ExecutionPolicy(streams=2).bounds() == {}


@pytest.mark.parametrize("field", [{"new_shapes": "refuse"}, {"max_programs": 2}, {"max_bytes": 1 << 20}])
def test_what_only_sessions_follow_is_refused_by_a_compile(field: dict[str, Any]) -> None:
    policy = ExecutionPolicy(streams=2, **field)
    assert policy.for_compile() == ExecutionPolicy(streams=2)
    graph = aicf.Graph("one")
    graph.output(graph.relu(graph.input("x", (16, 24))), "y")
    (name,) = field
    with pytest.raises(PolicyError) as error:
        aicf.compile(graph, policy=policy)
    assert error.value.message == (
        f"{name}: a compile makes what it is asked for; give this to an InferenceSession"
    )


@pytest.fixture(scope="module")
def weights() -> dict[str, Any]:
    return {"w": np.random.default_rng(3).normal(size=(24, 24)).astype(np.float32)}


def compiled(weights: dict[str, Any], **fields: Any) -> aicf.CompiledModel:
    """A product between softmaxes over either axis: four instructions, of which the last may overwrite."""
    graph = aicf.Graph("chain")
    x = graph.input("x", (16, 24))
    product = graph.matmul(graph.softmax(x, 0), graph.param("w", (24, 24)))
    graph.output(graph.add(graph.softmax(graph.softmax(product, 0), 1), x), "y")
    return aicf.compile(graph, weights, "cpu", policy=ExecutionPolicy(**fields))


@pytest.mark.parametrize(
    ("fields", "arena", "prepared"),
    [
        ({}, 2, True),
        ({"inplace": False}, 2, True),
        ({"memory": "separate"}, 2, True),
        ({"memory": "separate", "inplace": False}, 3, True),
        ({"prepared_weights": False}, 2, False),
    ],
)
def test_each_field_does_what_it_says_and_changes_no_result(
    weights: dict[str, Any], fields: dict[str, Any], arena: int, prepared: bool
) -> None:
    x = np.random.default_rng(4).normal(size=(16, 24)).astype(np.float32)
    baseline, exe = compiled(weights), compiled(weights, **fields)
    assert exe.plan.programs[0].arena_bytes == arena * 16 * 24 * 4
    assert (exe.plan.prepare is not None) == prepared
    np.testing.assert_allclose(exe(x), baseline(x), rtol=1e-5)


def bindings_on(target: str, **bindings: str) -> dict[str, str | None]:
    graph = aicf.Graph("one")
    graph.output(graph.softmax(graph.input("x", (16, 24)), 0), "y")
    module = graph.module()
    policy = Policy(execution=ExecutionPolicy(bindings=bindings))
    run(AicfInferencePass(target, policy.to_line()).passes(), make_context(), module)
    assert decisions_of(module).execution.bindings == {n: b for n, b in bindings.items() if b == "staged"}
    return {bind.name: bind.binding for bind in read_module(module).programs[0].graph.binds}


def test_a_device_stages_what_the_policy_names() -> None:
    assert bindings_on("cuda:sm_90a") == {"x": "direct", "y": "direct"}
    assert bindings_on("cuda:sm_90a", x="staged", y="direct") == {"x": "staged", "y": "direct"}


@pytest.mark.parametrize(
    ("target", "name", "message"),
    [
        ("cpu:x86-64-v3", "x", "bindings.x: cpu uses callers' memory where it is; write direct, or drop it"),
        ("cuda:sm_90a", "z", "bindings.z: no input or output has that name; it has: x, y"),
    ],
)
def test_what_cannot_be_staged_is_refused(target: str, name: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        bindings_on(target, **{name: "staged"})
    assert error.value.message == message
