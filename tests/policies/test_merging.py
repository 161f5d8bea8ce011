"""Policies that are changed, put together and checked: `with_`, `merge`, `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import aicf
from aicf.errors import InvalidIR, PolicyError
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import Fusion, KernelPolicy
from aicf.policies.policy import Policy
from aicf.policies.precision_policy import PrecisionPolicy
from tests.policies.test_execution_policy import policies as execution_policies
from tests.policies.test_kernel_policy import policies as kernel_policies
from tests.policies.test_precision_policy import policies as precision_policies

MLP = Path(__file__).parents[2] / "examples" / "digits" / "mlp.mlir"


# with_


def test_with_changes_entries_and_leaves_the_rest() -> None:
    policy = KernelPolicy(kernels={"fc1": "a", "fc2": "b"}, fusion=Fusion(norm=False), matmul="native")
    changed = policy.with_(
        tf32=True, kernels={"fc1": None, "fc3": "c"}, fusion={"prologue": False}, matmul=None
    )
    assert changed == KernelPolicy(
        kernels={"fc2": "b", "fc3": "c"}, fusion=Fusion(norm=False, prologue=False), tf32=True
    )
    assert policy.kernels == {"fc1": "a", "fc2": "b"} and policy.matmul == "native"


def test_with_takes_values_as_the_class_has_them() -> None:
    policy = KernelPolicy().with_(groups=(("a", "b"),), forbid=("x",), fusion=Fusion(gated=False))
    assert policy == KernelPolicy(groups=(("a", "b"),), forbid=("x",), fusion=Fusion(gated=False))
    ranges = PrecisionPolicy().with_(to="int8", ranges={"fc1": ((-1.0, 2.0),)})
    assert ranges == PrecisionPolicy(to="int8", ranges={"fc1": ((-1.0, 2.0),)})


def test_with_on_all_sections() -> None:
    policy = Policy().with_(streams=2, rounding="strict", precision={"to": "bf16"})
    assert policy == Policy(
        KernelPolicy(rounding="strict"), ExecutionPolicy(streams=2), PrecisionPolicy(to="bf16")
    )
    assert policy.with_(kernel=KernelPolicy(tf32=True), execution=None) == Policy(
        KernelPolicy(tf32=True), precision=PrecisionPolicy(to="bf16")
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stream": 2}, "stream: unknown field; did you mean 'streams' or 'streams_of'?"),
        ({"stream": None}, "stream: unknown field; did you mean 'streams' or 'streams_of'?"),
        ({"streams": -1}, "streams: must be at least 0, got -1"),
        ({"kernel": 3}, "kernel: expected a KernelPolicy, got 3"),
        ({"kernel": ExecutionPolicy()}, "kernel: expected a KernelPolicy, got ExecutionPolicy("),
        ({"kernel": {"streams": 2}}, "streams: unknown field; legal: attention, "),
        ({"fusion": {"epilog": False}}, "fusion.epilog: unknown field; did you mean 'epilogue'?"),
    ],
)
def test_with_refuses_what_a_file_may_not_say(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as error:
        Policy().with_(**changes)
    assert error.value.message.startswith(message)


# merge


def test_merge_says_all_that_either_says() -> None:
    ours = Policy(
        KernelPolicy(kernels={"fc1": "a"}, forbid=("x",), fusion=Fusion(norm=False), groups=(("a", "b"),))
    )
    theirs = Policy(
        KernelPolicy(kernels={"fc2": "b"}, forbid=("y", "x"), groups=(("c",), ("a", "b")), tf32=True),
        ExecutionPolicy(streams=2),
    )
    kernel = KernelPolicy(
        kernels={"fc1": "a", "fc2": "b"},
        forbid=("x", "y"),
        fusion=Fusion(norm=False),
        groups=(("a", "b"), ("c",)),
        tf32=True,
    )
    assert ours.merge(theirs) == Policy(kernel, ExecutionPolicy(streams=2))
    assert ours.merge(ExecutionPolicy(memory="separate")).execution == ExecutionPolicy(memory="separate")


def test_merge_puts_entries_of_records_together() -> None:
    ours, theirs = (KernelPolicy(records={"fc1": entry}) for entry in ({"tile_rows": 6}, {"tile_columns": 4}))
    assert ours.merge(theirs).records == {"fc1": {"tile_rows": 6, "tile_columns": 4}}


@settings(max_examples=40)
@given(kernel_policies, execution_policies, precision_policies)
def test_a_policy_merged_with_itself_or_the_default_is_the_same(
    kernel: KernelPolicy, execution: ExecutionPolicy, precision: PrecisionPolicy
) -> None:
    policy = Policy(kernel, execution, precision)
    # Lists are united item by item.
    same = policy.with_(forbid=list(dict.fromkeys(kernel.forbid)))
    assert same.merge(same) == same.merge(Policy()) == Policy().merge(same) == same


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (
            KernelPolicy(kernels={"fc1": "a"}),
            KernelPolicy(kernels={"fc1": "b"}),
            "kernels.fc1: 'a' in a.yaml, 'b' in b.yaml; drop one of them",
        ),
        (
            KernelPolicy(records={"fc1": {"tile": 1}}),
            KernelPolicy(records={"fc1": {"tile": 2}}),
            "records.fc1.tile: 1 in a.yaml, 2 in b.yaml; drop one of them",
        ),
        (
            KernelPolicy(determinism="any"),
            KernelPolicy(determinism="batch_invariant"),
            "determinism: 'any' in a.yaml, 'batch_invariant' in b.yaml; drop one of them",
        ),
        (
            KernelPolicy(groups=(("x",), ("a", "b"))),
            KernelPolicy(groups=(("b", "c"),)),
            "groups[1] in a.yaml and groups[0] in b.yaml both have 'b'; drop it from one of them",
        ),
        (
            KernelPolicy(kernels={"fc1": "a"}),
            KernelPolicy(forbid=("b", "a")),
            "a.yaml and b.yaml together: kernels.fc1: 'a' is in forbid[1] too; drop it from one of them",
        ),
        (
            PrecisionPolicy(to="int8", rest="f16"),
            PrecisionPolicy(to="bf16"),
            "to: 'int8' in a.yaml, 'bf16' in b.yaml; drop one of them",
        ),
    ],
)
def test_contradictions_name_both_places(ours: Any, theirs: Any, message: str) -> None:
    for one, other in ((ours, theirs), (Policy.of(ours), theirs), (Policy.of(ours), Policy.of(theirs))):
        with pytest.raises(PolicyError) as error:
            one.merge(other, ("a.yaml", "b.yaml"))
        assert error.value.message == message


def test_merge_wants_a_policy_of_the_section() -> None:
    with pytest.raises(PolicyError, match="kernel: expected a KernelPolicy, got ExecutionPolicy"):
        KernelPolicy().merge(ExecutionPolicy())  # pyright: ignore[reportArgumentType]


# validate


def test_validate_makes_every_decision() -> None:
    good = KernelPolicy(kernels={"fc1": "cpu.gemm_portable"}, groups=(("prob.max",),))
    good.validate(str(MLP), "cpu:x86-64-v3", dims="N=2")
    ExecutionPolicy(streams=1, bindings={"x": "direct"}).validate(MLP, "cpu:x86-64-v3", dims={"N": 2})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (KernelPolicy(kernels={"fc9": "cpu.gemm_portable"}), "kernels.fc9: no group or kind has that name; "),
        (KernelPolicy(kernels={"fc1": "cpu.gemn_portable"}), "kernels.fc1: backend 'cpu' has no kernel "),
        (KernelPolicy(groups=(("fc9.matmul",),)), "groups[0]: no op has the id 'fc9.matmul'; "),
        (ExecutionPolicy(streams_of={"step": 1}), "streams_of.step: no program has that name; "),
        (PrecisionPolicy(ops={"fc9": "bf16"}), "ops.fc9: no op has this id; "),
    ],
)
def test_validate_finds_names_that_the_model_has_not(policy: Any, message: str) -> None:
    for checked in (policy, Policy.of(policy)):
        with pytest.raises(PolicyError) as error:
            checked.validate(MLP, "cpu:x86-64-v3", dims="N=2")
        assert error.value.message.startswith(message)


def test_validate_reads_a_model() -> None:
    with pytest.raises(InvalidIR, match="unknown model file type"):
        aicf.Policy().validate("model.txt")
