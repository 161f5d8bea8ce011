"""The object code of the CPU backend: deterministic, self-contained, refused when it is damaged or foreign."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.backends.cpu.backend import CpuBackend
from aicf.backends.cpu.codegen.scalar.ops import EMITTERS
from aicf.backends.cpu.families.loops.scalar_costs import SCALAR_CYCLES
from aicf.backends.cpu.target import LEVELS, CpuLevel, check_host, host_level, level_named
from aicf.backends.native import NativeCode
from aicf.backends.registry import resolve_target, target_spec
from aicf.errors import ArtifactError, BackendUnavailable, PolicyError
from tests.backends.cpu.harness import undefined_symbols
from tests.backends.cpu.programs import argument, build, function, lower, mlp

HOST = host_level().name
SQUARE = function(
    [argument("a", (64, 48)), argument("b", (48, 56))],
    ((64, 56), "f32"),
    "%r = logical.matmul %a, %b : (tensor<64x48xf32>, tensor<48x56xf32>) -> tensor<64x56xf32>",
)


def test_code_has_no_undefined_symbols_and_few_entries() -> None:
    native = build(lower(mlp(261, "none", 120, 400), HOST, threads=2))
    assert undefined_symbols(native.code) == []
    assert native.functions == ("barrier counter", "sched_yield")
    assert native.features[0] == f"cpu:{HOST}"


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_builds_on_any_machine(level: str) -> None:
    assert undefined_symbols(build(lower(mlp(5, "tanh"), level)).code) == []


DIGEST = """
import hashlib
from tests.backends.cpu.programs import build, lower, mlp
print(hashlib.sha256(build(lower(mlp(261, "none", 120, 400), "x86-64-v3", threads=2)).code).hexdigest())
"""


def test_two_processes_make_the_same_bytes() -> None:
    here = hashlib.sha256(build(lower(mlp(261, "none", 120, 400), "x86-64-v3", threads=2)).code).hexdigest()
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
        done = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == here


LOAD = """
import sys
from aicf.backends.registry import load_native
from aicf.backends.native import NativeCode
from aicf.backends.registry import resolve_target, target_spec
code = load_native("cpu", NativeCode(open(sys.argv[1], "rb").read(), tuple(sys.argv[2:])))
code.entry("aicf_f")
print([name for name in ("numba", "xdsl", "numpy") if name in sys.modules])
"""


def test_equal_layers_have_their_code_once() -> None:
    """Each one more is a row of numbers: a word for its function, and two for each operand."""

    def code_bytes(layers: int) -> int:
        graph = aicf.Graph("deep")
        x = graph.input("x", (1, 64))
        for layer in range(layers):
            x = graph.softmax(graph.linear(x, graph.param(f"w{layer}", (64, 64))))
        graph.output(x, "y")
        weights = {f"w{layer}": np.zeros((64, 64), np.float32) for layer in range(layers)}
        return len(aicf.compile(graph, weights, "cpu:x86-64-v3").native.code)

    few, many = 4, 12
    assert (code_bytes(many) - code_bytes(few)) / (many - few) < 600


def test_loading_imports_no_compiler(tmp_path: Any) -> None:
    native = build(lower(SQUARE, HOST))
    path = tmp_path / "code.o"
    path.write_bytes(native.code)
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
    command = [sys.executable, "-c", LOAD, str(path), *native.features]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "change,error,message",
    [
        ({"code": b"not an object"}, ArtifactError, "native code cannot be loaded"),
        ({"code": lambda code: code[:-100]}, ArtifactError, "native code cannot be loaded"),
        ({"code": lambda code: code[:100]}, ArtifactError, "native code cannot be loaded"),
        ({"code": lambda code: b"MZ" + code[2:]}, ArtifactError, "native code cannot be loaded"),
        ({"features": ()}, ArtifactError, "does not say which cpu level"),
        ({"features": ("cpu:z80",)}, ArtifactError, "unknown level"),
        ({"functions": ("system",)}, ArtifactError, "asks for an unknown function 'system'"),
    ],
)
def test_damaged_code_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    native = build(lower(SQUARE, HOST))
    native = replace(
        native, **{key: edit(native.code) if callable(edit) else edit for key, edit in change.items()}
    )
    with pytest.raises(error, match=message):
        CpuBackend().load(native)


def test_missing_entry_is_named() -> None:
    with pytest.raises(ArtifactError, match="no function 'nowhere'"):
        CpuBackend().load(build(lower(SQUARE, HOST))).entry("nowhere")


def test_missing_features_are_named() -> None:
    impossible = replace(host_level(), required_features=("avx9000",))
    if host_level().architecture != "x86_64":
        pytest.skip("features are looked up on x86")
    with pytest.raises(
        BackendUnavailable,
        match=f"this machine lacks avx9000: compile it with target 'cpu:{re.escape(HOST)}'",
    ):
        check_host(impossible)


def test_code_of_another_architecture_is_refused() -> None:
    foreign: CpuLevel = replace(host_level(), architecture="vax")
    with pytest.raises(BackendUnavailable, match=r"compiled for cpu:.* \(vax\) but this machine is"):
        check_host(foreign)


def test_unknown_level_lists_the_legal_ones() -> None:
    with pytest.raises(
        PolicyError, match="unknown cpu level 'avx': use one of x86-64-v2, x86-64-v3, x86-64-v4"
    ):
        level_named("avx")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cpu:x86-64-v4+avx9", r"'avx9' names no library; .*, or \+ and one of avx512vnni, avx512bf16$"),
        ("cpu:x86-64-v3+avx512vnni", "cpu level x86-64-v3 has no features: leave out .*, or use x86-64-v4"),
        ("cuda:sm_90a+avx512vnni", r"'avx512vnni' names no library; write \+library=version$"),
    ],
)
def test_unknown_features_are_refused(target: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        resolve_target(target)


def test_features_follow_the_level_in_one_order() -> None:
    target = resolve_target("cpu:x86-64-v4+avx512bf16+scipy-openblas64=0.3 Zen+avx512vnni")
    assert target_spec(target) == "cpu:x86-64-v4+avx512vnni+avx512bf16+scipy-openblas64=0.3 Zen"
    assert level_named(target.arch.data).required_features[-2:] == ("avx512vnni", "avx512bf16")
    assert "+avx512vnni,+avx512bf16" in level_named(target.arch.data).llvm_features


def test_legal_ops_are_the_ones_with_code() -> None:
    assert EMITTERS.keys() == SCALAR_CYCLES.keys()


def test_native_code_is_plain_data() -> None:
    assert isinstance(build(lower(SQUARE, HOST)), NativeCode)
