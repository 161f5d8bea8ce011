"""`aicf`: what each command does, what it prints, and its exit statuses. Error texts are in test_bad_input."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import aicf
from aicf.backends.cpu.target import host_level
from aicf.engines import report
from aicf.inspection.explain import WIDTH, microseconds
from aicf.support.dataclass_json import to_json_value
from aicf.tools.aicf_cli import main
from tests.support.processes import interruptible
from tests.support.training_graphs import mlp as training_mlp
from tests.test_compiler import MLP, ROOT, STEP, mlp_exact, mlp_weights, normal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights, an input, and artifacts of the classifier and of the SGD step."""
    folder = tmp_path_factory.mktemp("cli")
    safetensors.numpy.save_file(mlp_weights(), folder / "mlp.safetensors")
    np.save(folder / "x.npy", normal(3, 64))
    command = ["compile", str(MLP), "-o", str(folder / "mlp.aicf"), "--dims", "N=1,3"]
    assert main([*command, "--weights", str(folder / "mlp.safetensors")]) == 0
    weights = {"w": normal(4, 8), "b": normal(4), "lr": np.float32(0.1)}
    aicf.compile(STEP, weights, "cpu").save(folder / "step.aicf")
    return folder


def test_compile_says_what_it_made(folder: Path, capsys: pytest.CaptureFixture[str]):
    out = folder / "one.aicf"
    arguments = [
        "compile",
        str(MLP),
        "-o",
        str(out),
        "--target",
        "reference",
        "--dims",
        "N=2",
        "--name",
        "digits",
    ]
    assert main([*arguments, "--weights", str(folder / "mlp.safetensors"), "--policy", "auto"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{out}: digits for reference:typed"
    assert lines[1].startswith("  @digits@N=2: 3 instructions (3 reference.body), ")
    assert lines[2] == "  weights: 68,904 bytes"
    assert aicf.load(out).name == "digits"

    assert main(["compile", str(ROOT / "examples/softmax.mlir"), "-o", str(out)]) == 0
    assert "  @rows: 1 instruction (1 cpu.generated), " in capsys.readouterr().out


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Model and weights of a training step, as arguments of a command, and the target."""
    folder = tmp_path_factory.mktemp("training")
    module, feeds = training_mlp(batch=256, layers=3)
    (folder / "step.mlir").write_text(str(module), "utf-8")
    weights = {name: array for name, array in feeds.items() if name not in ("x", "labels")}
    safetensors.numpy.save_file(weights, folder / "step.safetensors")
    return [
        str(folder / "step.mlir"),
        "--weights",
        str(folder / "step.safetensors"),
        "--target",
        "cpu:x86-64-v3",
    ]


def test_compile_takes_the_options_of_training(
    training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    whole, less, again = (str(tmp_path / f"{name}.aicf") for name in ("whole", "less", "again"))
    options = ["--meta", "host", "--check-finite"]
    assert main(["compile", *training, "-o", whole]) == 0
    memory = aicf.load(whole).memory()["arena@mlp"]
    assert main(["compile", *training, "-o", less, *options, "--memory-budget", str(memory * 9 // 10)]) == 0
    compiled = aicf.load(less)
    assert compiled.memory()["arena@mlp"] <= memory * 9 // 10
    assert "host({formula" in compiled.ir("emit") and "aicf.bad_step" in compiled.ir("emit")

    policy = str(tmp_path / "p.yaml")
    assert main(["policy", "extract", less, "-o", policy]) == 0
    assert "--target cpu:x86-64-v3 --meta host --check-finite\n" in Path(policy).read_text("utf-8")
    assert main(["policy", "apply", training[0], policy, *training[1:], "-o", again, *options]) == 0
    capsys.readouterr()
    assert main(["diff", less, again]) == 0
    assert main(["diff", whole, less]) == 1
    assert re.search(r"module\n(  .*\n)*  save of \S+: keep -> recompute\n", capsys.readouterr().out)


def test_a_budget_that_cannot_be_met_is_told(
    training: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = str(tmp_path / "none.aicf")
    assert main(["compile", *training, "-o", out, "--memory-budget", "64"]) == 1
    assert "error: memory budget of 64 bytes: @mlp takes" in capsys.readouterr().err


def test_run_writes_every_output(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "made" / "here"
    assert (
        main(["run", str(folder / "mlp.aicf"), "--input", f"x={folder / 'x.npy'}", "--output", str(out)]) == 0
    )
    assert capsys.readouterr().out == f"{out / 'probabilities.npy'}: f32[3, 10]\n"
    np.testing.assert_allclose(
        np.load(out / "probabilities.npy"), mlp_exact(np.load(folder / "x.npy"), mlp_weights()), rtol=2e-5
    )


def doubled(*names: str) -> str:
    """x + x, under each of the names."""
    results = ", ".join(f'tensor<2xf32> {{logical.name = "{name}"}}' for name in names)
    values = [f"%y{index}" for index in range(len(names))]
    ops = "".join(f"  {value} = logical.add %x, %x : tensor<2xf32>\n" for value in values)
    types = ", ".join("tensor<2xf32>" for _ in names)
    return (
        'func.func @twice(%x : tensor<2xf32> {logical.name = "x", logical.role = "input"}) -> '
        f"({results}) {{\n{ops}  func.return {', '.join(values)} : {types}\n}}\n"
    )


def test_run_makes_file_names_of_the_names_of_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Those of ONNX models have slashes."""
    x = normal(2)
    np.save(tmp_path / "x.npy", x)
    program = tmp_path / "m.mlir"
    arguments = ["run", str(program), "--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "out")]
    program.write_text(doubled("/head/Add_output_0", "y"))
    assert main(arguments) == 0
    paths = [tmp_path / "out" / f"{stem}.npy" for stem in ("_head_Add_output_0", "y")]
    assert capsys.readouterr().out == "".join(f"{path}: f32[2]\n" for path in paths)
    for path in paths:
        np.testing.assert_array_equal(np.load(path), x + x)
    for names, message in (
        (("z/a", "z_a"), "outputs 'z/a' and 'z_a' would both be z_a.npy; call the executable from Python"),
        ((".",), "output '.' is no file name; call the executable from Python for it"),
    ):
        program.write_text(doubled(*names))
        assert main(arguments) == 1
        assert capsys.readouterr().err.splitlines()[-1] == f"aicf: error: {message}"
    assert sorted((tmp_path / "out").iterdir()) == sorted(paths)


def test_run_writes_what_the_call_updated(folder: Path, tmp_path: Path):
    x, y = normal(64, 8, seed=1), normal(64, 4, seed=2)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    arguments = ["run", str(folder / "step.aicf"), "--input", f"x={tmp_path / 'x.npy'}"]
    assert main([*arguments, "--input", f"y={tmp_path / 'y.npy'}", "--output", str(tmp_path)]) == 0
    expected = aicf.load(folder / "step.aicf")
    loss = expected(x, y)
    np.testing.assert_array_equal(np.load(tmp_path / "loss.npy"), loss)
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), expected.state()["w"])


def test_run_takes_a_model_of_the_sizes_of_its_inputs(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The second time its program comes out of the cache; weights and inputs are the same."""
    monkeypatch.setattr(report.LOGGER, "propagate", False)
    model = MLP
    arguments = [
        "run",
        str(model),
        "--weights",
        str(folder / "mlp.safetensors"),
        "--cache",
        str(tmp_path / "c"),
    ]
    arguments += ["--input", f"x={folder / 'x.npy'}", "--output", str(tmp_path)]
    for said in ("compiled N=3", "loaded N=3"):
        assert main(arguments) == 0
        printed = capsys.readouterr()
        assert printed.out == f"{tmp_path / 'probabilities.npy'}: f32[3, 10]\n" and said in printed.err
    found = np.load(tmp_path / "probabilities.npy")
    np.testing.assert_allclose(found, mlp_exact(np.load(folder / "x.npy"), mlp_weights()), rtol=2e-5)


def test_run_and_bench_take_no_options_of_a_compile_for_an_artifact(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    artifact = str(folder / "mlp.aicf")
    for command, option in (
        ("run", ["--device", "cpu"]),
        ("run", ["--cache", "c"]),
        ("run", ["--engine", "openvino"]),
        ("bench", ["--dims", "N=1"]),
    ):
        assert main([command, artifact, *option]) == 1
        message = f"aicf: error: {option[0]} has no effect on an artifact, which is compiled; leave it out\n"
        assert capsys.readouterr().err == message


def test_bench_compiles_a_model(folder: Path, capsys: pytest.CaptureFixture[str]):
    model = str(MLP)
    weights = str(folder / "mlp.safetensors")
    assert main(["bench", model, "--weights", weights, "--dims", "N=2", "--repeats", "2"]) == 0
    out = capsys.readouterr().out
    assert "N=2: call " in out and "fc1@N=2" in out


def test_dims_add_up(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "m.aicf"
    command = ["compile", str(MLP), "-o", str(out), "--weights", str(folder / "mlp.safetensors")]
    command += ["--target", "reference"]
    assert main([*command, "--dims", "N=1", "--dims", "N=3,5"]) == 0
    assert [row.sizes for row in aicf.load(out).plan.rows] == [(1,), (3,), (5,)]
    capsys.readouterr()
    assert main([*command, "--dims", "N=1", "--dims", "N=1"]) == 1
    assert capsys.readouterr().err.endswith("error: dims: 'N=1,1' repeats a name or a size; give each once\n")


def test_bench_makes_weights_up_if_it_is_told_to(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    command = ["bench", str(MLP), "--dims", "N=2", "--repeats", "2", "--target", "reference"]
    assert main(command) == 1
    assert capsys.readouterr().err == (
        f"{MLP}: error: missing weights fc1.weight, fc1.bias, fc2.weight, fc2.bias, fc3.weight, fc3.bias; pass a "
        ".safetensors file (--weights), or --random-weights to time the program with any\n"
    )
    assert main([*command, "--random-weights"]) == 0
    assert "@digits@N=2: call " in capsys.readouterr().out
    assert main(["bench", str(STEP), "--random-weights", "--repeats", "2"]) == 0
    assert "grad_w" in capsys.readouterr().out
    weights = ["--weights", str(folder / "mlp.safetensors")]
    (tmp_path / "m.mlir").write_text(aicf.load(folder / "mlp.aicf").ir("emit"))
    for arguments, why in (
        ([*command, *weights], "--weights has weights"),
        (["bench", str(tmp_path / "m.onnx")], "an ONNX model brings its own weights"),
        (["bench", str(tmp_path / "m.mlir")], "on an emit program; give --weights"),
        (["bench", str(folder / "mlp.aicf")], "on an artifact, which is compiled"),
    ):
        assert main([*arguments, "--random-weights"]) == 1
        assert why in capsys.readouterr().err


def test_bench_and_explain_as_json(folder: Path, capsys: pytest.CaptureFixture[str]):
    artifact = str(folder / "mlp.aicf")
    exe = aicf.load(artifact)
    assert main(["bench", artifact, "--repeats", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "mlp" and found["target"] == f"cpu:{exe.plan.arch}"
    names = [[row["name"] for row in each["instructions"]] for each in found["programs"]]
    assert names == [[node.name for node in program.graph.nodes] for program in exe.plan.programs]
    assert all(each["timing"]["call_us"] > 0 for each in found["programs"])
    for arguments, answer in (
        ([], exe.explain()),
        (["relu1"], exe.explain("relu1")),
        (["--why-not", "relu1", "fc2"], exe.why_not("relu1", "fc2")),
        (["--list"], exe.value_names()),
    ):
        assert main(["explain", artifact, *arguments, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(to_json_value(answer)))


def test_explain_lists_what_it_answers_for(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", str(folder / "mlp.aicf"), "--list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split(maxsplit=2) == ["name", "kind", "what it is"]
    rows = [tuple(re.split("  +", line, maxsplit=2)) for line in lines]
    assert ("x", "input", "f32[1, 64], f32[3, 64]") in rows and (
        "fc1.weight",
        "param",
        "f32[128, 64]",
    ) in rows
    assert {("relu1", "op"), ("fc1@N=3", "instruction"), ("probabilities", "output")} <= {
        row[:2] for row in rows
    }
    for name, *_ in rows:
        assert main(["explain", str(folder / "mlp.aicf"), name]) == 0
    capsys.readouterr()
    for arguments in (["--list", "relu1"], ["--list", "--rejected"], ["--list", "--why-not", "fc1", "fc2"]):
        assert main(["explain", str(folder / "mlp.aicf"), *arguments]) == 2


def test_a_profile_shares_times_among_the_ops_of_the_model(folder: Path):
    """By the operations of the bodies: a product of 64 terms is 128 operations an element, and ReLU one."""
    exe = aicf.load(folder / "mlp.aicf")
    profile = aicf.Profiler(exe).measure(np.load(folder / "x.npy"), repeats=3)
    by_source = profile.by_source()
    assert set(by_source) == {"fc1", "relu1", "fc2", "relu2", "fc3", "prob"}
    assert sum(by_source.values()) == pytest.approx(profile.total_us, rel=1e-9)
    work = exe.work_by_source()["fc1@N=3"]
    assert work["relu1"] == 3 * 128 and work["fc1"] == 3 * 128 * (2 * 64 + 1)
    fc1 = next(row for row in profile.instructions if row.name == "fc1@N=3")
    assert by_source["relu1"] == pytest.approx(fc1.median_us / (2 * 64 + 2), rel=1e-9)


def test_explain_is_plain_in_a_pipe(folder: Path, capsys: pytest.CaptureFixture[str]):
    """No colours, and lines that fit a page."""
    assert main(["explain", str(folder / "mlp.aicf")]) == 0
    out = capsys.readouterr().out
    assert out == f"{aicf.load(folder / 'mlp.aicf').explain()}\n"
    assert "\x1b" not in out and " gemm_epilogue by cpu.gemm" in out and " us predicted" in out
    assert max(map(len, out.splitlines())) <= WIDTH


def test_explain_answers_for_one_value(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", str(folder / "mlp.aicf"), "relu1"]) == 0
    out = capsys.readouterr().out
    assert "instruction fc1@N=3" in out and "because" in out and "not cpu.gemm_portable" in out


def test_explain_lists_what_was_rejected(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", str(folder / "mlp.aicf"), "--rejected"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("fc1@N=3: cpu.gemm_"))
    assert lines[first].endswith("because lowest predicted time; unmeasured")
    assert any(line.startswith("  not cpu.gemm_portable: ") for line in lines[first + 1 : first + 4])


def test_explain_lists_what_was_rejected_for_one_value(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Of the value's instructions alone, and nothing of how it was fused."""
    assert main(["explain", str(folder / "mlp.aicf"), "relu1", "--rejected"]) == 0
    value, *lines = capsys.readouterr().out.splitlines()
    assert value == "relu1" and all(line.startswith(("select-kernels of fc1@N=", "  not ")) for line in lines)
    assert any(line.startswith("  not cpu.gemm_portable: ") for line in lines)


def test_a_missing_kernel_is_told_with_its_location(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The file, line and column of the op, as for any other mistake in a program."""
    source = tmp_path / "many.mlir"
    tensor = "tensor<70000x4x4xi16>"  # more matrices than a grid has room for
    source.write_text(
        f'func.func @f(%x : {tensor} {{logical.name = "x", logical.role = "input"}})'
        f' -> ({tensor} {{logical.name = "y"}}) {{\n  %y = logical.matmul %x, %x : ({tensor}, {tensor}) -> {tensor}\n'
        f"  func.return %y : {tensor}\n}}"
    )
    given = ["compile", str(source), "-o", str(tmp_path / "m.aicf"), "--target", "cuda:sm_90a"]
    assert main(given) == 1
    assert capsys.readouterr().err.startswith(f"{source}:2:3: error: no kernel of target cuda runs 'y'")


def test_the_version_is_that_of_the_project(capsys: pytest.CaptureFixture[str]):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"aicf {project['version']}\n"


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.0, "<0.001"), (0.0004, "<0.001"), (0.0123, "0.012"), (1.005, "1.00"), (279.1234, "279.12")],
)
def test_no_time_is_printed_as_zero(us: float, text: str):
    assert microseconds(us) == text


def test_explain_on_a_terminal_fits_it(folder: Path):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "aicf.tools.aicf_cli", "explain", str(folder / "mlp.aicf")],
        cwd=ROOT,
        stdout=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "60"},
    )
    os.close(follower)
    shown = b""
    while chunk := _read(leader):
        shown += chunk
    os.close(leader)
    assert process.wait() == 0
    text = shown.decode()
    assert "\x1b[" in text and "fc1@N=1" in text and "one kernel for 3 ops" in text


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


def test_bench_times_programs_and_instructions(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", str(folder / "mlp.aicf"), "--repeats", "3"]) == 0
    out = capsys.readouterr().out
    assert "@digits@N=1: call " in out and "@digits@N=3: call " in out and " us, replay " in out
    assert "fc1@N=3" in out and "predicted us" in out


def test_devices_lists_the_backends(capsys: pytest.CaptureFixture[str]):
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    assert "reference:typed" in out and f"cpu:{host_level().name} " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "No such command 'fly'"),
        (["compile", "x.mlir"], "Missing option"),
        (["compile", "x.mlir", "-o", "y", "--speed", "9"], "No such option"),
        (["bench", "x.aicf", "--repeats", "0"], "--repeats"),
        (["compile", "x.mlir", "-o", "y", "--meta", "host,device"], "'--meta'"),
        (["compile", "x.mlir", "-o", "y", "--memory-budget", "2.5"], "'--memory-budget'"),
        (["chat", "x.gguf", "--temperature", "hot"], "'--temperature'"),
        (["chat", "x.gguf", "--max-tokens", "-1"], "'--max-tokens'"),
        (["policy", "apply", "x.mlir", "p.yaml", "-o", "y", "--memory-budget", "-1"], "'--memory-budget'"),
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


COMMANDS = (
    "",
    "compile",
    "run",
    "chat",
    "quantize",
    "explain",
    "diff",
    "view",
    "bench",
    "devices",
    "engines",
    "compare",
    "policy",
    "policy extract",
    "policy apply",
    "policy merge",
    "policy validate",
    "policy schema",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    assert main([*command.split(), "--help"]) == 0
    assert "Usage: aicf" in capsys.readouterr().out


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", "nowhere.aicf", "--debug"]) == 1
    assert main(["--debug", "explain", "nowhere.aicf"]) == 1
    assert capsys.readouterr().err.count("Traceback (most recent call last):\n  File") >= 2
    assert main(["explain", "nowhere.aicf"]) == 1
    assert "Traceback" not in capsys.readouterr().err


_SAYING_WHAT_IT_OPENS = """
import sys
from aicf.tools.aicf_cli import main
sys.addaudithook(lambda event, of: event == "open" and str(of[0]) == sys.argv[2] and print("opened", flush=True))
sys.exit(main())
"""
"""`aicf`, with a line on stdout once it opens its first argument: it is inside the command then."""


def test_ctrl_c_during_a_compile_is_status_130(tmp_path: Path):
    ops = "\n".join(f"  %v{index + 1} = logical.exp %v{index} : tensor<4x4xf32>" for index in range(4000))
    program = tmp_path / "long.mlir"
    program.write_text(
        'func.func @long(%v0 : tensor<4x4xf32> {logical.name = "x", logical.role = "input"})\n'
        f'    -> (tensor<4x4xf32> {{logical.name = "y"}}) {{\n{ops}\n  func.return %v4000 : tensor<4x4xf32>\n}}\n'
    )
    out = tmp_path / "long.aicf"
    command = [sys.executable, "-c", _SAYING_WHAT_IT_OPENS, "compile", str(program), "-o", str(out)]
    process = subprocess.Popen(
        interruptible([*command, "--target", "reference"]),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "opened\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.endswith("aicf: interrupted\n") and "Traceback" not in err
    assert not out.exists() and [path.name for path in tmp_path.iterdir()] == ["long.mlir"]
