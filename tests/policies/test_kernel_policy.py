"""Kernel policies: their forms, and errors that name the path and the legal values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aicf.backends.registry import backend_names, get_kernels, libraries_by_family
from aicf.dialects.kinds import FAMILIES, KINDS, family_of
from aicf.errors import PolicyError
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import (
    DETERMINISM,
    LAYOUTS,
    MATH,
    MEASUREMENTS,
    ROUNDING,
    Fusion,
    KernelPolicy,
    is_meant,
)
from aicf.policies.policy import Policy

FULL = KernelPolicy(
    determinism="any",
    rounding="strict",
    fusion=Fusion(epilogue=False),
    kernels={"fc1.matmul": "cpu.gemm", "softmax": "cpu.loop"},
    matmul="openblas",
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
    kernels=st.dictionaries(names, names.map("cpu.{}".format), max_size=3),
    matmul=names,
    attention=names,
    forbid=st.lists(names.map("not.{}".format), max_size=3).map(tuple),
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
        "matmul",
        "attention",
        "conv",
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
        "kernel: unknown field; did you mean 'kernels'? legal: attention, conv, determinism, forbid, fusion",
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
    ("{layouts: {a: nhwc}}", "layouts.a: 'nhwc' is not legal; legal: channels_last, pitched, row_major"),
    ("{layouts: {a: 1}}", "layouts.a: expected one of row_major, channels_last, pitched, got 1"),
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
        "kernels.fc1: 'cpu.gemm' is in forbid[0] too; drop it from one of them",
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


# Families


def test_every_family_has_a_field() -> None:
    """One that is added to the table of kinds is missing here until a policy can speak of it."""
    assert set(FAMILIES) <= set(KernelPolicy.READERS)
    assert family_of("gemm_gated") == "matmul" and family_of("add") == ""


@pytest.mark.parametrize("backend", ["cpu", "cuda", "reference"])
def test_every_kernel_of_a_family_can_be_asked_for(backend: str) -> None:
    """A kernel that is added says what it is called."""
    assert backend in backend_names()
    unnamed = [
        kernel.id
        for kernel in get_kernels(backend).values()
        if not kernel.library and any(map(family_of, kernel.kinds))
    ]
    assert not unnamed
    assert not any({"auto", MATH} & set(known) for known in libraries_by_family(backend).values())


def test_kernels_say_what_they_are_called() -> None:
    found = libraries_by_family("cuda")
    assert set(found["matmul"]) == {"cublasLt", "wgmma", "mma", "simt", "gemv"}
    assert set(found["attention"]) == {"flash_v2", "flash_v3", "decode", "simt", "cudnn"}
    assert libraries_by_family("cpu") == {
        "matmul": ("openblas", "native"),
        "attention": ("flash",),
        "conv": ("native", "gemm", "direct", "depthwise", "winograd"),
    }


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            KernelPolicy(matmul="cublaslt"),
            "matmul: backend 'cuda' has no library 'cublaslt'; did you mean 'cublasLt'? legal: auto, cublasLt, gemv, ",
        ),
        (
            KernelPolicy(attention="flas_v2"),
            "attention: backend 'cuda' has no library 'flas_v2'; did you mean 'flash_v",
        ),
        (KernelPolicy(conv="winograd"), "conv: backend 'cuda' has no library 'winograd'; legal: auto"),
        (KernelPolicy(matmul=MATH), "matmul: backend 'cuda' has no library 'math'; "),
    ],
)
def test_a_library_that_the_target_lacks_is_an_error(policy: KernelPolicy, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy.check_libraries(libraries_by_family("cuda"), "cuda")
    assert caught.value.message.startswith(message)


def test_a_name_without_its_version_means_each_version() -> None:
    libraries = libraries_by_family("cuda")
    KernelPolicy(attention="flash").check_libraries(libraries, "cuda")
    assert {name for name in libraries["attention"] if is_meant("flash", name)} == {"flash_v2", "flash_v3"}
    assert not is_meant("flash_v2", "flash_v3")
    assert not is_meant("fla", "flash_v2")
    assert not is_meant(None, "flash_v2")


def test_a_family_covers_its_kinds() -> None:
    policy = KernelPolicy(matmul="mma", attention=MATH)
    policy.check_libraries(libraries_by_family("cuda"), "cuda")
    assert {policy.library_for(kind) for kind in ("gemm", "gemm_epilogue", "gemm_multi", "norm_gemm")} == {
        "mma"
    }
    assert policy.library_for("add") is None and policy.library_for("conv") is None
    assert policy.forbids_fusion("attention") == "attention: math"
    assert policy.forbids_fusion("epilogue") is None
    assert KernelPolicy(fusion=Fusion(attention=False)).forbids_fusion("attention") == "fusion.attention"


# Files


@pytest.mark.parametrize("name", ["policy.json", "policy.yaml"])
def test_a_policy_comes_back_from_its_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    FULL.save(path)
    assert KernelPolicy.load(path) == FULL
    assert Policy.load(str(path)) == Policy(FULL)
    ExecutionPolicy(streams=2).save(path, "how")
    assert ExecutionPolicy.load(path) == ExecutionPolicy(streams=2)


def test_a_file_with_both_sections_is_not_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    Policy(FULL, ExecutionPolicy(streams=2)).save(path)
    with pytest.raises(
        PolicyError, match="policy.json: it also has 'execution'; read all of it with aicf.Policy.load"
    ):
        KernelPolicy.load(path)
    assert Policy.load(path).kernel == FULL


def test_a_file_may_have_the_fields_alone(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("matmul: cublasLt\n")
    assert KernelPolicy.load(path) == KernelPolicy(matmul="cublasLt")
    path.write_text("matmull: cublasLt\n")
    with pytest.raises(PolicyError, match="policy.yaml: matmull: unknown field; did you mean 'matmul'"):
        KernelPolicy.load(path)


def test_auto_leaves_every_choice_open() -> None:
    assert KernelPolicy.auto() == KernelPolicy()
