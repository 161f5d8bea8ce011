"""What users can get wrong, one case each: a one-line error that says what, where, and the way out.

Programs go through the command line, so that position and exit status are checked as well; the rest through Python.
Ctrl-C is in test_cli, where the command is a process of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aicf
from aicf.backends.cpu import target as cpu_target
from aicf.compilation.record import EMIT, LEDGER, NATIVE, PLAN, PREPARED, WEIGHTS
from aicf.saving import artifact
from aicf.tools.aicf_cli import main
from aicf.tools.aicf_opt import main as aicf_opt
from tests.test_compiler import MLP, Floats, mlp_weights, normal

INPUT = '%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"}'
OUTPUT = 'tensor<2x3xf32> {logical.name = "y"}'
RETURN = "  func.return %y : tensor<2x3xf32>"
RELU = "  %y = logical.relu %x : tensor<2x3xf32>"


def program(*body: str, inputs: str = INPUT, outputs: str = OUTPUT) -> str:
    """The text of a function; its header is line 1, the body starts at line 2."""
    return "\n".join([f"func.func @f({inputs}) -> ({outputs}) {{", *body, "}", ""])


def grouped(kernel: str, second: str) -> str:
    """A group of two ops that was formed by hand, with the kernel that it names."""
    weight = '%v : tensor<3x3xf32> {logical.name = "v", logical.role = "input"}'
    return program(
        '  %y = emit.group "two" from ["m", "n"] ins(%a = %x : tensor<2x3xf32>, %w = %v : tensor<3x3xf32>)'
        f" -> (tensor<2x3xf32>){kernel} {{",
        "    %1 = logical.matmul %a, %w : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>",
        f"    %2 = {second}",
        "    emit.yield %2 : tensor<2x3xf32>",
        "  }",
        RETURN,
        inputs=f"{INPUT}, {weight}",
    )


def sized(size: str) -> str:
    """A relu over a tensor of that size."""
    type_ = f"tensor<{size}xf32>"
    return program(
        f"  %y = logical.relu %x : {type_}",
        f"  func.return %y : {type_}",
        inputs=f'%x : {type_} {{logical.name = "x", logical.role = "input"}}',
        outputs=f'{type_} {{logical.name = "y"}}',
    )


PROGRAMS = {
    "syntax": (
        program("  %y = logical.relu %x : tensor<2x3xf32", RETURN),
        ":3:3: error: expected '>' after builtin parameter list, found 'func.return'",
    ),
    "empty": ("", ":1:1: error: the program is empty: expected a builtin.module or a func.func"),
    "not text": ("\udcff", ":1:1: error: the program is not UTF-8: byte 0xff; save the file as UTF-8 text"),
    "unknown op": (
        program("  %y = logical.rela %x : tensor<2x3xf32>", RETURN),
        ":2:3: error: unknown operation logical.rela; did you mean 'logical.relu' or ",
    ),
    "operand of another type": (
        program("  %y = logical.relu %x : tensor<2x4xf32>", RETURN),
        ":2:21: error: %x is used with type tensor<2x4xf32>, but is defined with type tensor<2x3xf32> at ",
    ),
    "result of another type": (
        program('  %y = logical.compare "lt" %x, %x : tensor<2x3xf32> -> tensor<2x3xf32>', RETURN),
        ":2:3: error: logical.compare: result type is 2x3xf32, but the operands give 2x3xi1",
    ),
    "used before its definition": (
        program(
            "  %y = logical.relu %z : tensor<2x3xf32>", "  %z = logical.relu %x : tensor<2x3xf32>", RETURN
        ),
        ":2:3: error: logical.relu: %z is used before its definition at ",
    ),
    "never defined": (
        program("  %y = logical.relu %q : tensor<2x3xf32>", RETURN),
        ":2:21: error: %q is used but not defined",
    ),
    "role missing": (
        program(RELU, RETURN, inputs='%x : tensor<2x3xf32> {logical.name = "x"}'),
        ':1:1: error: @f: argument "x" has no role; logical.role is one of input, param, state, meta',
    ),
    "role unknown": (
        program(RELU, RETURN, inputs=INPUT.replace('"input"', '"weight"')),
        ':1:1: error: @f: argument "x" has the unknown role "weight"; logical.role is one of input, param, state, meta',
    ),
    "name missing": (
        program(RELU, RETURN, outputs="tensor<2x3xf32>"),
        ':1:1: error: @f: result 0 has no name; give it logical.name = "..." or logical.updates = "..."',
    ),
    "duplicate names": (
        program(RELU, RETURN, inputs=f"{INPUT}, {INPUT.replace('%x', '%z')}"),
        ':1:1: error: @f: the name "x" is used twice; arguments and results have names of their own',
    ),
    "duplicate ids": (
        program(
            '  %z = logical.relu %x {aicf.id = "a"} : tensor<2x3xf32>',
            '  %y = logical.relu %z {aicf.id = "a"} : tensor<2x3xf32>',
            RETURN,
        ),
        ':3:3: error: logical.relu "a": another op has this id too; change one aicf.id or remove it',
    ),
    "dimension mismatch": (
        program(
            "  %y = logical.matmul %x, %x : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>", RETURN
        ),
        ":2:3: error: logical.matmul: contracted sizes differ: "
        "lhs K = 3 (dim 1 of 2x3), rhs K = 2 (dim 0 of 2x3)",
    ),
    "a method in logical IR": (
        program("  %y = logical.relu %x {tile = 4} : tensor<2x3xf32>", RETURN),
        ":2:3: error: logical.relu: unknown attribute 'tile'",
    ),
    "a group that no kernel takes": (
        grouped("", "logical.matmul %1, %w : (tensor<2x3xf32>, tensor<3x3xf32>) -> tensor<2x3xf32>"),
        ":2:3: error: no kernel of target cpu runs group 'two' of kind generated: cpu.generated: it is not one set of "
        "loops over all elements (two products in one instruction); split the group or choose another target",
    ),
    "a group whose record is not whole": (
        grouped(
            ' kernel("cpu.gemm_portable", {version = 4 : i64, determinism = "bitwise"})',
            "logical.relu %1 : tensor<2x3xf32>",
        ),
        "kernel 'cpu.gemm_portable' cannot run it as its record says: it lacks 'lanes', legal: 1, 2, 4, 8",
    ),
    "huge dims": (
        sized("4611686018427387904x3"),
        ":2:3: error: logical.relu: tensor<4611686018427387904x3xf32> takes 55340232221128654848 bytes; "
        "the largest tensor takes 140737488355328 (2^47)",
    ),
    "unbound dim": (
        program(
            '  %y = logical.relu %x : tensor<?x3xf32, #logical.dims<["N", ""]>>',
            '  func.return %y : tensor<?x3xf32, #logical.dims<["N", ""]>>',
            inputs=INPUT.replace("2x3xf32", '?x3xf32, #logical.dims<["N", ""]>'),
            outputs=OUTPUT.replace("2x3xf32", '?x3xf32, #logical.dims<["N", ""]>'),
        ),
        'error: unbound symbolic dimensions: N; give sizes for each, as in dims="N=1"',
    ),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_programs(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text, message = PROGRAMS[case]
    path = tmp_path / "bad.mlir"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["compile", str(path), "-o", str(tmp_path / "bad.aicf")]) == 1
    err = capsys.readouterr().err
    where = str(path) if message.startswith(":") else ""
    assert err.startswith(where) and message in err
    assert err.count("\n") == 1 and not (tmp_path / "bad.aicf").exists()


# Command lines


def policy_of(policy: object) -> list[str]:
    """The command that compiles the classifier with a policy."""
    return ["compile", str(MLP), "-o", "x", "--dims", "N=1", "--policy", json.dumps(policy)]


COMMANDS = {
    "no such model": (
        ["compile", "nowhere.mlir", "-o", "x"],
        "nowhere.mlir: error: cannot read the model: No such file",
    ),
    "unknown kind of model": (
        ["compile", "model.pb", "-o", "x"],
        "unknown model file type '.pb'; known: .mlir, .onnx",
    ),
    "no such weights": (
        ["compile", str(MLP), "-o", "x", "--dims", "N=1", "--weights", "nowhere.safetensors"],
        "nowhere.safetensors: error: cannot read the weights: no such file; check the path",
    ),
    "unknown target": (
        ["compile", str(MLP), "-o", "x", "--target", "gpu"],
        "aicf: error: unknown backend 'gpu'; registered: ",
    ),
    "unknown level": (
        ["compile", str(MLP), "-o", "x", "--target", "cpu:vax"],
        "unknown cpu level 'vax': use one of x86-64-v2, ",
    ),
    "unknown dim": (
        ["compile", str(MLP), "-o", "x", "--dims", "M=1"],
        "dims: the program has no symbolic dimension M; its dimensions are: N",
    ),
    "malformed dims": (
        ["compile", str(MLP), "-o", "x", "--dims", "N=one"],
        "dims: cannot read 'N=one'; write sizes",
    ),
    "no elements": (
        ["compile", str(MLP), "-o", "x", "--dims", "N=0"],
        "size N is 0 for N=0; a dimension has at least 1 element",
    ),
    "overflowing dims": (
        ["compile", str(MLP), "-o", "x", "--dims", "N=99999999999999999999999"],
        "aicf: error: dims: cannot read 'N=99999999999999999999999'; write sizes per name, as in N=1,32;M=4",
    ),
    "no threads": (["compile", str(MLP), "-o", "x", "--threads", "0"], "threads must be at least 1, got 0"),
    "unknown policy": (
        ["compile", str(MLP), "-o", "x", "--policy", "fast"],
        "policy 'fast': give 'auto', inline JSON, or a .json, .yaml or .yml file",
    ),
    "unknown field of a policy": (
        ["compile", str(MLP), "-o", "x", "--policy", '{"speed": 1}'],
        "speed: unknown field; legal: accuracy, activations, attention, bindings, conv, corrections, determinism, "
        "forbid, fusion, groups, inplace, keep, kernels, layouts, matmul, max_bytes, max_programs, measurements, "
        "memory, method, new_shapes, ops, order, packed_activations, prepared_weights, ranges, records, rest, "
        "rounding, saves, smoothing, streams, streams_of, tf32, to, version",
    ),
    "unknown kernel": (
        ["compile", str(MLP), "-o", "x", "--dims", "N=1", "--policy", '{"kernels": {"fc1": "cpu.gem"}}'],
        "kernels.fc1: backend 'cpu' has no kernel 'cpu.gem'; did you mean 'cpu.gemm_",
    ),
    "unknown op in a policy": (
        [
            "compile",
            str(MLP),
            "-o",
            "x",
            "--dims",
            "N=1",
            "--policy",
            '{"kernels": {"fc9": "cpu.gemm_portable"}}',
        ],
        "kernels.fc9: no group or kind has that name; did you mean 'fc3' or 'fc2' or 'fc1'?",
    ),
    "unknown op in a group of a policy": (
        policy_of({"groups": [["fc1.matmul", "relu9"]]}),
        "groups[0]: no op has the id 'relu9'; did you mean 'relu2' or 'relu1'?",
    ),
    "group that no kernel takes": (
        policy_of({"groups": [["fc1.matmul", "fc3.matmul"]]}),
        "groups[0]: its ops form no group together: 'fc1.matmul' in 'fc1@N=1', 'fc3.matmul' in 'fc3.matmul@N=1'; "
        "no kernel of the target runs them as one instruction; split or drop the entry",
    ),
    "group that is cut elsewhere": (
        policy_of({"groups": [["fc1.matmul", "fc1.bias", "fc2.matmul"]]}),
        "split it, as into [fc1.matmul, fc1.bias], or drop the entry",
    ),
    "record of an unknown op": (
        policy_of({"records": {"fc9": {"tile_rows": 3}}}),
        "records.fc9: no group has that name; did you mean 'fc3' or 'fc2' or 'fc1'?",
    ),
    "record entry of no kernel": (
        policy_of({"records": {"fc1": {"tile_row": 6}}}),
        "records.fc1.tile_row: 'cpu.gemm_portable' does not offer 6; it records nothing of that name; drop records.fc1 "
        "to leave the record to the kernel",
    ),
    "no kernel is left": (
        policy_of({"forbid": ["cpu.generated"]}),
        "(logical.reduce_max): cpu.generated: forbidden by policy (forbid); change the policy or choose another target",
    ),
    "record that no kernel offers": (
        policy_of({"kernels": {"fc1": "cpu.gemm_portable"}, "records": {"fc1": {"tile_rows": 99}}}),
        "records.fc1.tile_rows: 'cpu.gemm_portable' does not offer 99; it offers ",
    ),
    "streams of an unknown program": (
        policy_of({"execution": {"streams_of": {"digit": 2}}}),
        "streams_of.digit: no program has that name; did you mean 'digits@N=1'?",
    ),
    "binding of an unknown value": (
        policy_of({"execution": {"bindings": {"logits": "staged"}}}),
        "bindings.logits: no input or output has that name; it has: probabilities, x",
    ),
    "fused op in a policy": (
        [
            "compile",
            str(MLP),
            "-o",
            "x",
            "--dims",
            "N=1",
            "--policy",
            '{"kernels": {"relu1": "cpu.generated"}}',
        ],
        "kernels.relu1: no group or kind has that name; ",
    ),
    "no such artifact": (
        ["explain", "nowhere.aicf"],
        "nowhere.aicf: error: the artifact cannot be read: No such file",
    ),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_commands(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    arguments, message = COMMANDS[case]
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("fuse-epilogue", "unknown pass 'fuse-epilogue'; did you mean 'fuse-epilogues'"),
        ("specialize-shapes{dim=1}", "pass 'specialize-shapes' has no option 'dim'; did you mean 'dims'?"),
        ("schedule{a", "malformed pipeline 'schedule{a'"),
    ],
)
def test_pipelines(pipeline: str, message: str, capsys: pytest.CaptureFixture[str]):
    assert aicf_opt([str(MLP), "-p", pipeline]) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


# Weights


def without(*names: str) -> dict[str, Any]:
    return {name: array for name, array in mlp_weights().items() if name not in names}


def changed(name: str, change: Callable[[Floats], Any]) -> dict[str, Any]:
    return {**mlp_weights(), name: change(mlp_weights()[name])} if name in mlp_weights() else {}


WEIGHTS_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "missing": (without("fc1.bias", "fc2.bias"), "missing weights fc1.bias, fc2.bias; given: fc1.weight, "),
    "extra": ({**mlp_weights(), "fc4.bias": normal(3)}, "there is no weight 'fc4.bias'; did you mean 'fc"),
    "dtype": (
        changed("fc1.bias", lambda array: array.astype(np.float64)),
        "weight 'fc1.bias': expected f32[128], got f64[128]; save it with that type",
    ),
    "shape": (
        changed("fc1.weight", np.transpose),
        "weight 'fc1.weight': expected f32[128, 64], got f32[64, 128]; save it with that type",
    ),
    "no array": (
        changed("fc1.weight", lambda array: [[1], [1, 2]]),
        "weight 'fc1.weight': list is no array of numbers; use np.asarray",
    ),
}


@pytest.mark.parametrize("case", WEIGHTS_CASES)
def test_weights(case: str):
    weights, message = WEIGHTS_CASES[case]
    with pytest.raises(aicf.InputMismatch, match=re.escape(message)):
        aicf.compile(MLP, weights, "reference", dims="N=1")


def test_a_weights_file_of_another_format(tmp_path: Path):
    path = tmp_path / "mlp.safetensors"
    path.write_bytes(b"these are no tensors at all")
    with pytest.raises(
        aicf.InputMismatch, match="mlp.safetensors: no safetensors file: .*; write it with safetensors"
    ):
        aicf.compile(MLP, path, "reference", dims="N=1")


@pytest.mark.parametrize("model", [None, ("func.func",), 7])
def test_a_model_of_another_type(model: Any):
    with pytest.raises(aicf.InvalidIR, match=f"a model is a path, .*, not {type(model).__name__}"):
        aicf.compile(model)


def test_an_unfinished_graph_is_located_in_the_users_file():
    with pytest.raises(
        aicf.InvalidIR, match=r'test_bad_input.py:\d+:1: graph "g" has no result; call output'
    ):
        aicf.compile(aicf.Graph("g"))


# Calls


@pytest.fixture(scope="module")
def exe() -> aicf.CompiledModel:
    return aicf.compile(MLP, mlp_weights(), "cpu", dims="N=1,4")


@pytest.fixture(scope="module")
def four() -> aicf.CompiledModel:
    return aicf.compile(MLP, mlp_weights(), "cpu", dims="N=4")


X = normal(4, 64)

CALLS: dict[str, tuple[Callable[[aicf.CompiledModel], object], str]] = {
    "no such bucket": (
        lambda exe: exe(normal(3, 64)),
        "no program for N=3; compiled for N=1 | N=4; compile for it too",
    ),
    "shape": (
        lambda exe: exe(normal(4, 63)),
        "input 'x': expected f32[N, 64], got f32[4, 63]; compiled for N=1 | N=4",
    ),
    "rank": (lambda exe: exe(normal(64)), "input 'x': expected f32[N, 64], got f32[64]"),
    "dtype": (
        lambda exe: exe(X.astype(np.float64)),
        "input 'x': expected f32[4, 64], got f64[4, 64]; convert it, as in array.astype('float32')",
    ),
    "no array": (
        lambda exe: exe(X.tolist()),
        "input 'x': expected an array f32[1, 64], got list; use np.asarray",
    ),
    "missing": (lambda exe: exe(), "missing input x; it takes x: f32[N, 64]"),
    "too many": (lambda exe: exe(X, X), "expected 1 inputs (x), got 2"),
    "a weight": (lambda exe: exe({"x": X, "fc1.bias": normal(128)}), "'fc1.bias' is a weight, not an input"),
    "no such stage": (
        lambda exe: exe.ir("final"),
        "there is no IR stage 'final'; it has logical, lowered, emit, ",
    ),
    "no such dimension": (lambda exe: exe.instantiate(M=1), "there is no dimension 'M'; it has N"),
    "unbound input": (lambda exe: exe.instantiate(N=4).replay(), "input 'x' is not bound; bind() it"),
    "strided zero-copy": (
        lambda exe: exe.bind(x=np.asfortranarray(X)),
        "input 'x' has strides (4, 16) bytes, zero-copy needs aligned (256, 4); use np.ascontiguousarray",
    ),
    "read-only output": (
        lambda exe: exe.run({"x": X}, out=np.frombuffer(bytes(160), np.float32).reshape(4, 10)),
        "output 'probabilities' is a read-only array; give writable memory",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls(case: str, exe: aicf.CompiledModel):
    call, message = CALLS[case]
    with pytest.raises(aicf.InputMismatch, match=re.escape(message)):
        call(exe)


def test_one_program_says_that_its_shape_is_fixed(four: aicf.CompiledModel):
    with pytest.raises(aicf.InputMismatch, match="the shape was fixed when the program was compiled"):
        four(normal(3, 64))
    with pytest.raises(aicf.InputMismatch, match="expected f32.4, 64., got f32.64.; rank must be 2, is 1"):
        four(normal(64))


@pytest.mark.parametrize(
    "view",
    [np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x[::-1][::-1]],
    ids=["column-major", "strided", "reversed twice"],
)
def test_inputs_of_any_strides_are_accepted(exe: aicf.CompiledModel, view: Callable[[Floats], Floats]):
    np.testing.assert_array_equal(exe(view(X)), exe(X))


def test_writes_that_overlap_are_refused(four: aicf.CompiledModel):
    memory = np.zeros(300, np.float32)
    x, out = memory[:256].reshape(4, 64), memory[250:290].reshape(4, 10)
    message = "output 'probabilities' overlaps 'x' in memory; give it memory of its own"
    with pytest.raises(aicf.InputMismatch, match=message):
        four.run({"x": x}, out=out)
    with pytest.raises(aicf.InputMismatch, match=message):
        four.bind(x=x, probabilities=out)
    for name in ("fc1.weight", "fc1.bias"):
        weight = four.weights[name].reshape(-1)[:40].reshape(4, 10)
        with pytest.raises(aicf.InputMismatch, match=f"output 'probabilities' overlaps '{name}' in memory"):
            four.bind(x=X, probabilities=weight)


def test_more_memory_than_there_is():
    size = 1 << 21
    vector, matrix = f"tensor<{size}x1xf32>", f"tensor<{size}x{size}xf32>"
    exe = aicf.compile(
        program(
            f"  %m = logical.matmul %x, %x {{transpose_b}} : ({vector}, {vector}) -> {matrix}",
            f"  %y = logical.reduce_sum %m {{axes = [1]}} : {matrix} -> tensor<{size}xf32>",
            f"  func.return %y : tensor<{size}xf32>",
            inputs=f'%x : {vector} {{logical.name = "x", logical.role = "input"}}',
            outputs=f'tensor<{size}xf32> {{logical.name = "y"}}',
        )
    )
    with pytest.raises(
        aicf.BackendUnavailable, match=r"this machine cannot give 17,592,186,\d+,\d+ bytes at once"
    ):
        exe(normal(size, 1))


# Emit programs edited by hand

EDITS = {
    "overlap": (
        r"(%relu2 = emit.slot offset)\(2048\)",
        r"\1(0)",
        "instruction 'fc2@N=4' (from fc2, relu2): result 0 overlaps operand 0, which its kernel does not permit; "
        "give the result a slot of its own",
    ),
    "edge missing": (
        r'after\(\["fc1@N=4" full\]\)',
        "after([])",
        "'fc1@N=4' writes slot %relu1 that 'fc2@N=4' may read at the same time; "
        'add an edge: after(["fc1@N=4" full]) or the other way round',
    ),
    "edge to nothing": (
        r'after\(\["fc1@N=4"',
        'after(["fc7"',
        "instruction 'fc2@N=4' waits for 'fc7', which does not exist",
    ),
    "unknown kind": (
        r'resolved "softmax"',
        'resolved "softmix"',
        "instruction 'prob@N=4': unknown kind 'softmix'; did you mean 'softmax'",
    ),
    "id of another kind": (r'"softmax" id\(18\)', '"softmax" id(19)', "kind 'softmax' has id 18, not 19"),
    "blob": (
        r'blob\("0x0001010001"\)',
        'blob("0x00")',
        "blob 0x00 is not attrs packed by gemm_epilogue.v1 (0x0001010001)",
    ),
    "unknown kernel": (
        r'kernel\("cpu.generated"',
        'kernel("cpu.genius"',
        "backend cpu has no kernel 'cpu.genius'; it has ",
    ),
    "kernel of another version": (
        r"version = 2 ",
        "version = 9 ",
        "is version 2 here, the record has 9: run select-kernels again",
    ),
    "no source": (r'src\(\["prob"\]\)', "src([])", "instruction 'prob@N=4': it names no source op (src)"),
    "another meaning": (r"logical.relu", "logical.exp", "the body is authoritative"),
    "another code": (
        r"arith.maximumf",
        "arith.minimumf",
        "is not the code of its body; run generate-kernels again",
    ),
    "no target": (
        r"aicf.target = #emit.target<[^>]*>",
        "aicf.was = 1",
        "the emit program names no target; write aicf.target =",
    ),
}


@pytest.mark.parametrize("case", EDITS)
def test_edited_emit_programs(case: str, four: aicf.CompiledModel):
    pattern, replacement, message = EDITS[case]
    text, count = re.subn(pattern, replacement, four.ir("emit"))
    assert count
    with pytest.raises(aicf.AicfError, match=re.escape(message)) as caught:
        aicf.compile(text, mlp_weights())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"dims": "N=1"}, {"target": "cpu"}, {"policy": "auto"}])
def test_options_that_an_emit_program_cannot_follow(options: dict[str, str], four: aicf.CompiledModel):
    with pytest.raises(aicf.PolicyError, match=f"{next(iter(options))}= has no effect on an emit program"):
        aicf.compile(four.ir("emit"), mlp_weights(), **options)  # pyright: ignore[reportArgumentType]


# Artifacts


@pytest.fixture(scope="module")
def saved(four: aicf.CompiledModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "mlp.aicf"
    four.save(path)
    return path


FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "the artifact is empty; make one with `aicf compile MODEL -o bad.aicf`"),
    "foreign": (
        lambda data: b"\x7fELF" + data,
        "the artifact is not an AICF artifact; make one with `aicf compile",
    ),
    "truncated": (lambda data: data[:-100], "the artifact is truncated or corrupt: "),
    "tampered": (
        lambda data: data.replace(b"arith.maximumf", b"arith.minimumf"),
        "the artifact was damaged or edited: entry 'emit.mlir' fails its hash; copy the file again or make it anew",
    ),
}


def test_a_model_where_an_artifact_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The way out makes an artifact beside the model, not over it."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x08:")
    assert main(["explain", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"{path}: error: the artifact is not an AICF artifact; make one with `aicf compile m.onnx -o m.aicf`\n"
    )


@pytest.mark.parametrize("case", FILES)
def test_damaged_artifacts(case: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    damage, message = FILES[case]
    path = tmp_path / "bad.aicf"
    path.write_bytes(damage(saved.read_bytes()))
    assert main(["explain", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"{path}: error: {message}") and err.count("\n") == 1


def forge(saved: Path, path: Path, entries: dict[str, bytes] | None = None, **manifest: Any) -> Path:
    """A copy with other contents and hashes that fit them."""
    file = artifact.read(saved)
    kept = {key: value for key, value in file.manifest.items() if key not in ("entries", "format")}
    artifact.write(path, {**file.entries, **(entries or {})}, {**kept, **manifest})
    return path


def test_an_artifact_of_a_newer_version(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = artifact.read(saved)
    kept = {key: value for key, value in file.manifest.items() if key not in ("entries", "format")}
    with monkeypatch.context() as newer:
        newer.setattr(artifact, "FORMAT_VERSION", artifact.FORMAT_VERSION + 1)
        artifact.write(tmp_path / "newer.aicf", file.entries, kept)
    message = f"has format version {artifact.FORMAT_VERSION + 1}, and this AICF reads up to {artifact.FORMAT_VERSION}"
    with pytest.raises(
        aicf.ArtifactError, match=f"{message}; upgrade AICF or compile the model with this version"
    ):
        aicf.load(tmp_path / "newer.aicf")


FORGERIES: dict[str, tuple[dict[str, bytes], dict[str, Any], str]] = {
    "code": ({NATIVE: b"abc"}, {}, "native.bin does not say what its code needs; load it with native="),
    "plan": ({PLAN: b"{}"}, {}, "plan lacks field "),
    "plan no JSON": (
        {PLAN: b"{"},
        {},
        "entry 'plan.json' of the artifact is not JSON; compile the model again",
    ),
    "ledger": ({LEDGER: b"[1]"}, {}, "ledger[0] must be an object, got int"),
    "weights": (
        {WEIGHTS: b"abcdefghijkl"},
        {},
        "entry 'weights.safetensors' of the artifact is not safetensors",
    ),
    "other weights": (
        {WEIGHTS: safetensors.numpy.save({"fc1.weight": normal(2)})},
        {},
        "the artifact contradicts itself: missing weights ",
    ),
    "text": ({EMIT: b"\xff"}, {}, "entry 'emit.mlir' is not UTF-8 text"),
    "name": ({}, {"name": 3}, "manifest.name must be str, got int"),
    "features": ({}, {"cpu_features": []}, "the manifest says that the code needs nothing, native.bin cpu:"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_forged_artifacts(case: str, saved: Path, tmp_path: Path):
    entries, manifest, message = FORGERIES[case]
    path = forge(saved, tmp_path / "forged.aicf", entries, **manifest)
    with pytest.raises(aicf.ArtifactError, match=re.escape(message)) as caught:
        aicf.load(path)
    assert caught.value.location == str(path)


def test_a_machine_without_a_cpu_feature(saved: Path, monkeypatch: pytest.MonkeyPatch):
    level = aicf.load(saved).plan.arch
    needed = cpu_target.level_named(level).required_features
    if not needed:
        pytest.skip("this machine's level needs no feature")
    there = cpu_target.host_features()
    monkeypatch.setattr(cpu_target, "host_features", lambda: {**there, needed[-1]: False})
    monkeypatch.setattr(cpu_target, "host_architecture", lambda: cpu_target.level_named(level).architecture)
    message = f"the program was compiled for cpu:{level} but this machine lacks {needed[-1]}: compile it with target "
    with pytest.raises(aicf.BackendUnavailable, match=re.escape(message)):
        aicf.load(saved)


def test_an_unknown_way_to_load(saved: Path):
    with pytest.raises(aicf.InputMismatch, match="native='yes' is not legal; legal: use, rebuild"):
        aicf.load(saved, native="yes")  # pyright: ignore[reportArgumentType]


# Output paths


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A path that cannot be written, also by root: its folder is a file."""
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    yield blocker / "out"
    assert blocker.read_text() == "in the way"


def test_an_artifact_path_that_cannot_be_written(four: aicf.CompiledModel, read_only: Path):
    with pytest.raises(
        aicf.ArtifactError, match="cannot write the artifact: Not a directory; choose a path that can be"
    ):
        four.save(read_only)


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("compile MODEL -o MODEL --dims N=4", "the artifact"),
        ("compile MODEL -o WEIGHTS --weights WEIGHTS --dims N=4", "the artifact"),
        ("compile MODEL -o POLICY --policy POLICY --dims N=4", "the artifact"),
        ("policy apply MODEL POLICY -o POLICY --dims N=4", "the artifact"),
        ("policy extract PROGRAM -o PROGRAM", "the policy"),
        ("tune MODEL -o MODEL --dims N=4", "the tuning table"),
    ],
)
def test_no_command_writes_over_what_it_reads(
    command: str, made: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    files = {
        "MODEL": ("m.mlir", MLP.read_bytes()),
        "WEIGHTS": ("w.safetensors", safetensors.numpy.save(mlp_weights())),
        "POLICY": ("p.yaml", b"streams: 1\n"),
        "PROGRAM": ("m.aicf", saved.read_bytes()),
    }
    for name, content in files.values():
        (tmp_path / name).write_bytes(content)
    words = command.split()
    output = tmp_path / files[words[words.index("-o") + 1]][0]
    assert main([str(tmp_path / files[word][0]) if word in files else word for word in words]) == 1
    assert capsys.readouterr().err == (
        f"{output}: error: {made} would take the place of what it is made of; give -o another path\n"
    )
    assert all((tmp_path / name).read_bytes() == content for name, content in files.values())


def test_an_output_folder_that_cannot_be_written(
    saved: Path, read_only: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    np.save(tmp_path / "x.npy", X)
    assert main(["run", str(saved), "--input", f"x={tmp_path / 'x.npy'}", "--output", str(read_only)]) == 1
    err = capsys.readouterr().err
    assert "cannot write the output: Not a directory; choose a folder that can be written" in err


def test_a_failed_save_leaves_the_old_file(
    four: aicf.CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "model.aicf"
    path.write_bytes(b"old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(aicf.ArtifactError, match="cannot write the artifact: No space left on device"):
        four.save(path)
    assert path.read_bytes() == b"old" and [entry.name for entry in tmp_path.iterdir()] == ["model.aicf"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("x", "--input 'x': write NAME=FILE.npy, as in --input x=x.npy"),
        (
            "x=nowhere.npy",
            "nowhere.npy: error: cannot read the input: No such file or directory; check the path",
        ),
        (f"x={MLP}", "no .npy file: "),
        ("z={x}", "aicf: error: there is no input 'z'; it has x\n"),
    ],
)
def test_inputs_of_run(
    argument: str, message: str, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    np.save(tmp_path / "x.npy", X)
    given_input = argument.format(x=tmp_path / "x.npy")
    assert main(["run", str(saved), "--input", given_input, "--output", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


# Whatever comes: never anything but AicfError

PIECES = st.sampled_from([NATIVE, PLAN, LEDGER, WEIGHTS, PREPARED, EMIT])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=PIECES, part=st.floats(0, 1), junk=st.binary(min_size=1, max_size=8), cut=st.booleans())
def test_a_forged_entry_is_an_error_or_harmless(
    saved: Path, tmp_path: Path, name: str, part: float, junk: bytes, cut: bool
):
    if name == NATIVE:
        cut, part = True, part / 2  # bytes inside code are code: only its damage can be seen
    data = artifact.read(saved).entries[name]
    start = int(part * len(data))
    forged = data[:start] if cut else data[:start] + junk + data[start + len(junk) :]
    path = forge(saved, tmp_path / "forged.aicf", {name: forged})
    try:
        aicf.load(path)
    except aicf.AicfError as error:
        assert "\n" not in str(error)


@settings(max_examples=60, deadline=None)
@given(part=st.floats(0, 1), junk=st.text(max_size=6), length=st.integers(0, 12))
def test_a_garbled_program_is_an_error_or_compiles(part: float, junk: str, length: int):
    text = MLP.read_text("utf-8")
    start = int(part * len(text))
    try:
        aicf.compile(
            text[:start] + junk + text[start + length :] + "\n", mlp_weights(), "reference", dims="N=1"
        )
    except aicf.AicfError as error:
        assert "\n" not in str(error)
