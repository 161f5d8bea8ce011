"""Policy files: both kinds of policy in one text, in sections or in short, as JSON and YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicf.errors import PolicyError
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import Fusion, KernelPolicy
from aicf.policies.policy import Policy, resolve_policy
from tests.policies.test_execution_policy import policies as execution_policies
from tests.policies.test_kernel_policy import FULL, policies

BOTH = Policy(FULL, ExecutionPolicy(streams=3, memory="separate"))


@given(st.builds(Policy, policies, execution_policies))
def test_every_form_gives_the_same_policy_back(policy: Policy) -> None:
    assert Policy.from_json_value(policy.to_json_value()) == policy
    assert Policy.from_text(policy.to_json()) == policy
    assert Policy.from_text(policy.to_yaml()) == policy
    assert Policy.from_text(policy.to_line()) == policy


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml"])
def test_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"policy{suffix}"
    BOTH.save(path)
    assert Policy.load(path) == BOTH == resolve_policy(str(path))


def test_what_users_may_write() -> None:
    assert resolve_policy("auto") == Policy() == Policy.from_text("")
    two = Policy(execution=ExecutionPolicy(streams=2))
    assert resolve_policy('{"streams": 2}') == resolve_policy("{streams: 2}") == two
    assert (
        resolve_policy("{execution: {streams: 2}}")
        == resolve_policy("{kernel: , execution: {streams: 2}}")
        == two
    )
    mixed = resolve_policy("{groups: [[a, b], [c]], memory: separate, fusion: {epilogue: false}}")
    kernel = KernelPolicy(groups=(("a", "b"), ("c",)), fusion=Fusion(epilogue=False))
    assert mixed == Policy(kernel, ExecutionPolicy(memory="separate"))
    assert mixed.stated() == ["fusion", "groups", "memory"]


WRONG: list[tuple[str, str]] = [
    (
        "{stream: 2}",
        "stream: unknown field; did you mean 'streams' or 'streams_of'? legal: accuracy, activations, attention, "
        "bindings, conv, corrections, determinism, forbid, fusion, groups, inplace, keep, kernels, layouts, matmul, "
        "max_bytes, max_programs, measurements, memory, method, new_shapes, ops, order, packed_activations, "
        "prepared_weights, ranges, records, rest, rounding, saves, smoothing, streams, streams_of, tf32, to, version",
    ),
    ("{kernel: {streams: 2}}", "kernel.streams: unknown field; "),
    ("{execution: {kernels: {}}}", "execution.kernels: unknown field; legal: bindings, inplace, "),
    ("{kernel: {}, streams: 2}", "streams: unknown field; legal: execution, kernel"),
    ("{kernel: 3}", "kernel: expected an object, got 3"),
    ("{kernel: {determinism: never}}", "determinism: 'never' is not legal; "),
    ("{execution: {saves: {a.save: maybe}}}", "saves.a.save: 'maybe' is not legal; "),
    ("{kernel: {groups: [a]}}", 'groups[0]: expected a list, got "a"'),
    ("{execution: {version: 9}}", "execution.version: 9 is not known here; "),
    ("{streams: -1}", "streams: must be at least 0, got -1"),
    ("[1]", "policy: expected an object, got [1]"),
    ("{a", "policy: neither JSON nor YAML: "),
    ("{? [a] : b}", "policy: neither JSON nor YAML: "),
    ("kernel: []", "kernel: expected an object, got []"),
    ("kernel:\n  kernels: {a", "policy: neither JSON nor YAML: line 2, column 14: expected ',' or '}'"),
    ("kernels: {fc1: a, fc2: b, fc1: c}", "fc1: stands twice in one object, at line 1, column 27: keep one"),
    ('{"kernels": {"fc1": "a", "fc1": "b"}}', "fc1: stands twice in one object; keep one"),
    ("kernel: &own [*own]", "line 1, column 15: a policy holds no aliases; write the value out"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_errors_name_the_path(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        Policy.from_text(text)
    assert error.value.message.startswith(message)


@given(st.text(max_size=30))
def test_no_text_gives_another_error(text: str) -> None:
    try:
        Policy.from_text(text)
    except PolicyError as error:
        assert error.message


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyError, match="policy 'fast': give 'auto', inline JSON, or a .json, .yaml or .yml file"
    ):
        resolve_policy("fast")
    with pytest.raises(PolicyError, match=r"policy file '.*gone.yaml' cannot be read: .*No such file"):
        resolve_policy(str(tmp_path / "gone.yaml"))
    path = tmp_path / "policy.yaml"
    path.write_text("streams: -1\n")
    with pytest.raises(PolicyError, match=r"policy.yaml: streams: must be at least 0, got -1"):
        resolve_policy(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match="cannot be read"):
        resolve_policy(str(path))
    with pytest.raises(PolicyError, match="cannot be written"):
        BOTH.save(tmp_path / "no" / "policy.json")
