"""Kernel policies: their forms, and errors that name the path and the legal values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aicf.dialects.kinds import KINDS
from aicf.errors import PolicyError
from aicf.policies.kernel_policy import (
    DETERMINISM,
    LAYOUTS,
    MEASUREMENTS,
    ROUNDING,
    Fusion,
    KernelPolicy,
)

FULL = KernelPolicy(
    determinism="any",
    rounding="strict",
    fusion=Fusion(epilogue=False),
    kernels={"fc1.matmul": "cpu.gemm", "softmax": "cpu.loop"},
    forbid=("cpu.blas",),
    groups=(("a", "b"), ("c",)),
    layouts={"*": "row_major", "a": "channels_last"},
    records={
        "fc1.matmul": {"tile_rows": 6, "rows": {"unroll": 4, "ratio": 0.5}, "tail": True, "order": ["k"]}
    },
)

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)
policies = st.builds(
    KernelPolicy,
    determinism=st.sampled_from(DETERMINISM),
    rounding=st.sampled_from(ROUNDING),
    tf32=st.booleans(),
    fusion=st.builds(
        Fusion,
        attention=st.booleans(),
        gated=st.booleans(),
        horizontal=st.booleans(),
        prologue=st.booleans(),
        norm=st.booleans(),
        epilogue=st.booleans(),
        elementwise=st.booleans(),
        concat=st.booleans(),
    ),
    kernels=st.dictionaries(names, names, max_size=3),
    forbid=st.lists(names, max_size=3).map(tuple),
    groups=st.lists(names, unique=True, max_size=5).map(lambda ids: tuple((id_,) for id_ in ids)),
    layouts=st.dictionaries(names, st.sampled_from(LAYOUTS), max_size=3),
    records=st.dictionaries(
        names,
        st.dictionaries(
            names, st.integers(-9, 9) | st.booleans() | names | st.floats(0, 1) | st.lists(names)
        ),
        max_size=3,
    ),
    measurements=st.sampled_from(MEASUREMENTS),
)


@given(policies)
def test_every_form_gives_the_same_policy_back(policy: KernelPolicy) -> None:
    assert KernelPolicy.from_json_value(policy.to_json_value()) == policy
    assert KernelPolicy.from_attr(policy.to_attr()) == policy


def test_fields_have_a_fixed_order() -> None:
    wanted = [
        "version",
        "determinism",
        "rounding",
        "tf32",
        "fusion",
        "kernels",
        "records",
        "forbid",
        "groups",
        "layouts",
    ]
    wanted += ["measurements"]
    assert list(FULL.to_json_value()) == wanted
    switches = (
        "attention",
        "gated",
        "horizontal",
        "prologue",
        "norm",
        "epilogue",
        "elementwise",
        "multi_output",
        "concat",
    )
    assert FULL.to_json_value()["fusion"] == {name: name != "epilogue" for name in switches}


WRONG: list[tuple[str, str]] = [
    (
        "{kernel: {a: b}}",
        "kernel: unknown field; did you mean 'kernels'? legal: determinism, forbid, fusion, groups, kernels",
    ),
    ("{records: {fc1: 3}}", "records.fc1: expected an object, got 3"),
    (
        "{records: {fc1: {tile: }}}",
        "records.fc1.tile: expected a string, a number, true or false, a list or an obj",
    ),
    ("{version: 2}", "version: 2 is not known here; this release reads 1"),
    (
        "{determinism: bitwize}",
        "determinism: 'bitwize' is not legal; did you mean 'bitwise'? legal: any, batch_invariant, bitwise",
    ),
    ("{rounding: loose}", "rounding: 'loose' is not legal; legal: fused, strict"),
    ("{tf32: 1}", "tf32: expected true or false, got 1"),
    ("{rounding: 3}", "rounding: expected one of fused, strict, got 3"),
    ("{fusion: true}", "fusion: expected an object, got true"),
    (
        "{fusion: {epilog: true}}",
        "fusion.epilog: unknown field; did you mean 'epilogue'? legal: attention, concat, elementwise,",
    ),
    ("{fusion: {epilogue: 1}}", "fusion.epilogue: expected true or false, got 1"),
    ("{kernels: [a]}", 'kernels: expected an object, got ["a"]'),
    ("{kernels: {fc1: 3}}", "kernels.fc1: expected a string, got 3"),
    ("{records: {a: {expected_us: -1}}}", "records.a.expected_us: expected microseconds, at least 0, got -1"),
    (
        "{records: {a: {expected_us: soon}}}",
        "records.a.expected_us: expected microseconds, at least 0, got soon",
    ),
    ("{forbid: cpu.gemm}", 'forbid: expected a list, got "cpu.gemm"'),
    ("{forbid: [a, 1]}", "forbid[1]: expected a string, got 1"),
    ("{groups: [a]}", 'groups[0]: expected a list, got "a"'),
    ("{groups: [[a], []]}", "groups[1]: is empty; list op ids, or drop it"),
    ("{groups: [[a], [b, a]]}", "groups[1]: 'a' is in groups[0] already; name it once"),
    ("{layouts: {a: nhwc}}", "layouts.a: 'nhwc' is not legal; legal: channels_last, row_major"),
    ("{layouts: {a: 1}}", "layouts.a: expected one of row_major, channels_last, got 1"),
    ("{1: 2}", "1: unknown field; legal: "),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_errors_name_the_path(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        KernelPolicy.from_json_value(yaml.safe_load(text))
    assert error.value.message.startswith(message)


CHECKS: list[tuple[Callable[[KernelPolicy], None], dict[str, Any], str]] = [
    (
        lambda policy: policy.check_kernels(["cpu.gemm", "cpu.loop"], "cpu"),
        {"kernels": {"fc1": "cpu.gem"}},
        "kernels.fc1: backend 'cpu' has no kernel 'cpu.gem'; did you mean 'cpu.gemm'? legal: cpu.gemm, cpu.loop",
    ),
    (
        lambda policy: policy.check_kernels(["cpu.gemm"], "cpu"),
        {"forbid": ("blas",)},
        "forbid[0]: backend 'cpu' has no kernel 'blas'; legal: cpu.gemm",
    ),
    (
        lambda policy: policy.check_kernels(["cpu.gemm"], "cpu"),
        {"kernels": {"fc1": "cpu.gemm"}, "forbid": ("cpu.gemm",)},
        "kernels.fc1: 'cpu.gemm' is in forbid too; drop it from one of them",
    ),
    (
        lambda policy: policy.check_kernel_keys(["fc1.matmul", "fc2.matmul"]),
        {"kernels": {"fc9.matmul": "cpu.gemm"}},
        "kernels.fc9.matmul: no group or kind has that name; did you mean 'fc2.matmul' or 'fc1.matmul'?",
    ),
    (
        lambda policy: policy.check_kernel_keys(["fc1.matmul"]),
        {"records": {"gemm": {"tile_rows": 6}}},
        "records.gemm: no group has that name; it has: fc1.matmul",
    ),
    (
        lambda policy: policy.check_groups(["a", "b"]),
        {"groups": (("a", "c"),)},
        "groups[0]: no op has the id 'c'; it has: a, b",
    ),
    (
        lambda policy: policy.check_layout_keys(["conv1", "conv2"]),
        {"layouts": {"*": "row_major", "conv3": "channels_last"}},
        "layouts.conv3: no group of that name has results that may lie either way; did you mean 'conv2' or 'conv1'? "
        "these have: conv1, conv2",
    ),
]


@pytest.mark.parametrize(("check", "fields", "message"), CHECKS)
def test_names_are_checked_where_they_are_known(check: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as error:
        check(KernelPolicy(**fields))
    assert error.value.message.startswith(message)


def test_right_names_pass() -> None:
    FULL.check_kernels(["cpu.gemm", "cpu.loop", "cpu.blas"], "cpu")
    FULL.check_kernel_keys(["fc1.matmul"])
    FULL.check_groups(["a", "b", "c"])
    FULL.check_layout_keys(["a"])
    assert "softmax" in KINDS
