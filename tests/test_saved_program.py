"""Decisions as data: what is taken out of a compiled program and put in again gives that program, and an edit is all
that `diff` then shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.numpy
import yaml
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.comparison.diff import Comparison, Difference, compare
from aicf.compilation.record import EMIT, NATIVE
from aicf.compilation.saved_program import SavedProgram
from aicf.compilation.sources import read_model
from aicf.dialects.emit import find_ledger
from aicf.errors import PolicyError
from aicf.frontends.text import make_context, parse_module
from aicf.inspection.explain import WIDTH
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.emit.read_decisions import Pins, decisions_of, members_by_instruction
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from aicf.policies.execution_policy import ExecutionPolicy
from aicf.policies.kernel_policy import Fusion, KernelPolicy
from aicf.policies.policy import Policy
from aicf.runtime.plan_from_ir import read_module
from aicf.saving import artifact
from aicf.tools.aicf_cli import main
from tests.backends.cuda.recorded_models import bert_layer, library_calls
from tests.gpu.batch_norms import Normed, normed, passed_back
from tests.gpu.programs import encoder
from tests.support.fused_graphs import FAMILIES, fused_program
from tests.support.random_graphs import random_program
from tests.test_compiler import MLP, mlp_weights


def split_norm() -> aicf.Graph:
    """One row, normalised for two products of different widths: each takes the rows along on a GPU."""
    graph = aicf.Graph("split_norm")
    x = graph.input("x", (1, 256), "f16")
    scale, shift = (graph.param(part, (256,), "f16") for part in ("scale", "shift"))
    rows = graph.layer_norm(x, scale, shift, name="norm")
    for name, width in (("narrow", 64), ("wide", 512)):
        graph.output(
            graph.relu(graph.matmul(rows, graph.param(f"{name}.weight", (256, width), "f16"), name=name)),
            f"{name}_y",
        )
    return graph


Made = Callable[[], "aicf.Graph | Path"]
MODELS: dict[str, tuple[Made, str, str]] = {
    "digits": (lambda: MLP, "cpu:x86-64-v4", "N=1,32"),
    "encoder": (lambda: encoder("f32", 2, 16, 4, 16), "cpu:x86-64-v3", ""),
    "bert layer": (bert_layer, "cuda:sm_90a", ""),
    "split norm": (split_norm, "cuda:sm_90a", ""),
}
EDITS = {
    "digits": ("fc1@N=32", "cpu.gemm_avx2"),
    "encoder": ("linear3", "cpu.gemm_portable"),
    "bert layer": ("up", "cuda.gemm_wgmma"),
}


def saved_program(name: str, policy: Policy | None = None) -> SavedProgram:
    """A model compiled up to its final program; no code is made."""
    make, target, dims = MODELS[name]
    module = read_model(make(), make_context()).module
    text = "" if policy is None else policy.to_line()
    run(AicfInferencePass(target, text, dims).passes(), make_context(), module)
    return SavedProgram(name, module, read_module(module), None)


def stripped(module: ModuleOp) -> str:
    """The text without the ledger."""
    module = module.clone()
    if (ledger := find_ledger(module)) is not None:
        ledger.detach()
        ledger.erase()
    return str(module)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_taken_out_gives_the_same_program(name: str) -> None:
    first = saved_program(name)
    policy = Policy.from_text(first.policy.to_yaml())
    again = saved_program(name, policy)
    assert stripped(again.module) == stripped(first.module)
    assert decisions_of(again.module) == policy
    assert compare(first, again).is_equal


@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "cuda:sm_90a"])
def test_random_and_fused_programs_make_the_round_trip(target: str) -> None:
    modules = [random_program(seed, steps=12).module for seed in range(6)]
    modules += [fused_program(family, seed, "f32").module for seed, family in enumerate(FAMILIES)]
    for module in modules:
        first, again = module.clone(), module.clone()
        run(AicfInferencePass(target).passes(), make_context(), first)
        policy = decisions_of(first).to_line()
        run(AicfInferencePass(target, policy).passes(), make_context(), again)
        assert stripped(again) == stripped(first)


def two_steps(size: int) -> ModuleOp:
    """Two attentions over caches, one after the other, that share a position; sizes of heads that no kernel for cached
    keys takes on a GPU, or does."""
    graph = aicf.Graph("two_steps")
    position = graph.input("position", (), "i64")
    query = graph.input("query", (3, 4, size))
    for layer in range(2):
        key, value = (graph.input(f"{part}{layer}", (3, 40, size)) for part in ("key", "value"))
        query = graph.attention(query, key, value, position=position, causal=True, name=f"attention{layer}")
    graph.output(query, "y")
    return graph.module()


@pytest.mark.parametrize("size", [3, 32])
@pytest.mark.parametrize("target", ["cpu:x86-64-v4", "cuda:sm_90a"])
def test_masks_that_layers_share_make_the_round_trip(target: str, size: int) -> None:
    """One mask of 0 and -inf for both, or a copy of the comparisons for each: ids that no op of the model has."""
    first, again = two_steps(size), two_steps(size)
    run(AicfInferencePass(target).passes(), make_context(), first)
    run(AicfInferencePass(target, decisions_of(first).to_line()).passes(), make_context(), again)
    assert stripped(again) == stripped(first)


def added(made: Normed, dtype: str) -> aicf.Graph:
    """A norm by the mean of squares and what is added to it: its end is apart from the statistics, and casts the
    convolution's result for itself."""
    g, around = aicf.Graph("added"), [made.taps // 2] * 2
    x = g.transpose(g.input("x", (made.batch, *made.size, made.channels), dtype), (0, 3, 1, 2))
    w = g.param("w", (made.outputs, made.channels, made.taps, made.taps), dtype)
    wide = g.cast(g.conv(x, w, strides=[1, 1], low=around, high=around, name="conv"), "f32")
    mean = g.reduce_mean(wide, [0, 2, 3], keepdims=True)
    inverse = g.rsqrt(g.reduce_mean(wide * wide, [0, 2, 3], keepdims=True) - mean * mean + 1e-5)
    other = g.transpose(g.input("other", (made.batch, *made.size, made.outputs), dtype), (0, 3, 1, 2))
    y = g.relu(g.cast((wide - mean) * inverse, dtype) + other)
    g.output(g.transpose(y, (0, 2, 3, 1)), "y")
    g.output(inverse, "inverse")
    return g


MOMENTS = KernelPolicy(kernels={"conv_moments": "cuda.conv_wgmma_moments"})


@pytest.mark.parametrize(
    ("build", "copy"), [(normed, "cast0.conv"), (passed_back, "cast0.conv"), (added, "cast0.sub1")]
)
def test_moments_that_a_convolution_takes_make_the_round_trip(
    build: Callable[[Normed, str], aicf.Graph], copy: str
) -> None:
    """With copies of what both groups need, which no op of the model is; the norm is listed without what moved."""
    target, model = "cuda:sm_90a", build(Normed(32, 64, 256, (56, 56), 1), "bf16").module()
    first, again, grouped = (model.clone() for _ in range(3))
    run(AicfInferencePass(target, Policy(MOMENTS).to_line()).passes(), make_context(), first)
    listed = members_by_instruction(first)
    assert "conv_moments" in [op.kind.data for op in listed] and any(copy in ids for ids in listed.values())
    run(AicfInferencePass(target, decisions_of(first).to_line()).passes(), make_context(), again)
    assert stripped(again) == stripped(first)
    assert decisions_of(again) == decisions_of(first)
    groups = decisions_of(first, Pins(kernels=False, records=False)).to_line()
    run(AicfInferencePass(target, groups).passes(), make_context(), grouped)
    assert set(members_by_instruction(grouped).values()) == set(listed.values())
    RaiseEmitPass().apply(make_context(), again)
    run(AicfInferencePass(start="lowered").passes(), make_context(), again)
    assert stripped(again) == stripped(first)


def test_a_policy_may_cut_a_norm_where_no_pass_would() -> None:
    """A group that begins with one number a row and spreads it: passes start it at the sum that it follows from."""
    graph = aicf.Graph("norm")
    x = graph.input("x", (8, 32))
    squares = graph.mul(x, x, name="squares")
    inverse = graph.rsqrt(graph.reduce_mean(squares, [1], keepdims=True, name="mean") + 1e-5, name="inverse")
    graph.output(graph.mul(x, inverse, name="scaled"), "y")
    first, second = ["squares", "mean.sum", "mean", "add0"], ["inverse", "broadcast0", "scaled"]
    module = graph.module()
    policy = json.dumps({"groups": [first, second]})
    run(AicfInferencePass("cpu:x86-64-v3", policy).passes(), make_context(), module)
    assert [set(ids) for ids in members_by_instruction(module).values()] == [set(first), set(second)]


def test_a_listed_view_may_become_strides() -> None:
    """A softmax cut after its maximum, whose broadcast is how the second group reads it."""
    graph = aicf.Graph("rows")
    graph.output(graph.softmax(graph.input("x", (4, 8)), name="s"), "y")
    first, second = ["s.max"], ["s.max.broadcast", "s.sub", "s.exp", "s.sum", "s.sum.broadcast", "s.div"]
    module = graph.module()
    policy = json.dumps({"groups": [first, second]})
    run(AicfInferencePass("cpu:x86-64-v3", policy).passes(), make_context(), module)
    assert [list(ids) for ids in members_by_instruction(module).values()] == [first, second[1:]]


def test_a_measured_program_needs_no_table_again() -> None:
    """A library call with what only the device knows, and its measured time."""

    def product() -> aicf.Graph:
        graph = aicf.Graph("product")
        x, w = graph.softmax(graph.input("x", (64, 64), "f16")), graph.param("w", (64, 96), "f16")
        graph.output(graph.matmul(x, w, name="product"), "y")
        return graph

    def compiled(policy: str, tuning: str) -> ModuleOp:
        module = product().module()
        run(AicfInferencePass("cuda:sm_90a", policy, tuning=tuning).passes(), make_context(), module)
        return module

    table = library_calls(product(), "product")
    assert table is not None
    first = compiled("", table.to_line())
    policy = decisions_of(first)
    assert policy.kernel.kernels["product"] == "cuda.cublaslt"
    for tuning in ("", table.to_line()):
        assert stripped(compiled(policy.to_line(), tuning)) == stripped(first)


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_all_that_differs(name: str) -> None:
    first = saved_program(name)
    policy, (instruction, kernel) = first.policy, EDITS[name]
    kept = {id_: record for id_, record in policy.kernel.records.items() if id_ != instruction}
    kernels = {**policy.kernel.kernels, instruction: kernel}
    edited = replace(policy, kernel=replace(policy.kernel, kernels=kernels, records=kept))
    comparison = compare(first, saved_program(name, edited))
    # What @prepare does follows from what kernels ask for.
    (only,) = (d for d in comparison.differences if d.program != "prepare")
    assert (only.kind, only.subject) == ("kernel", instruction)
    assert (only.before, only.after) == (policy.kernel.kernels[instruction], kernel)
    assert only.entries
    assert not comparison.is_equal


def unfused(before: SavedProgram, **switches: bool) -> Comparison:
    return compare(before, saved_program("digits", Policy(KernelPolicy(fusion=Fusion(**switches)))))


def test_a_fusion_that_came_apart_is_one_difference() -> None:
    first = saved_program("digits")
    comparison = unfused(first, epilogue=False)
    lost = [d for d in comparison.differences if d.program == "digits@N=1" and d.kind == "fusion lost"]
    assert [d.subject for d in lost] == ["fc1@N=1", "fc2@N=1"]
    # Ops of the model; the parts of one only where several instructions compute it.
    assert lost[0].before.startswith("fc1 + relu1 by cpu.gemm")
    apart = [part.partition(" by ")[0] for part in lost[0].after.split(" | ")]
    assert apart == ["fc1.matmul", "fc1.bias + relu1"]
    before, after = comparison.figures["digits@N=1"]
    assert (before.instructions, after.instructions) == (4, 6)
    assert after.bytes_moved > before.bytes_moved and after.edges == 5
    assert "  instructions: 4 -> 6" in str(comparison)
    back = compare(saved_program("digits", Policy(KernelPolicy(fusion=Fusion(epilogue=False)))), first)
    assert [d.subject for d in back.differences if d.kind == "fusion gained"][:2] == ["fc1@N=1", "fc2@N=1"]


def test_a_comparison_fits_a_screen_and_says_the_bucket_once() -> None:
    text = str(unfused(saved_program("digits"), epilogue=False, elementwise=False))
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH + 2
    assert [line for line in lines if "N=1" in line] == ["@digits@N=1"]
    assert "  fusion lost of fc1: fc1 + relu1 by cpu.gemm" in text


def test_long_lists_and_records_are_cut() -> None:
    names = " + ".join(f"op{index}" for index in range(40))
    lost = Difference("fusion lost", "p@N=2", "a@N=2", f"{names} by k", " | ".join(["x@N=2 by k"] * 40))
    assert " ".join(" ".join(lost.lines()).split()) == (
        "fusion lost of a: op0 + op1 + op2 + op3 + op4 + op5 + 34 more by k -> "
        "x by k | x by k | x by k | x by k | 36 more"
    )
    entries = {
        "tile": ({"m": 4, "n": {"lanes": 8, "k": 1}}, {"m": 4, "n": {"lanes": 4, "k": 1}}),
        "x": (None, "y" * 900),
    }
    head, *lines = Difference("record", "p", "a", "k", "k", entries).lines()
    assert head == "record of a: k -> k" and lines[0] == "  tile.n.lanes: 8 -> 4"
    assert "".join(lines[1:]).replace(" ", "") == f"x:none->{'y' * 200}..."


def test_order_and_memory_are_compared() -> None:
    first = saved_program("encoder")
    two = compare(first, saved_program("encoder", Policy(execution=ExecutionPolicy(streams=2))))
    assert {d.kind for d in two.differences} == {"stream", "edges"}
    apart = compare(
        first, saved_program("encoder", Policy(execution=ExecutionPolicy(inplace=False, memory="separate")))
    )
    assert {d.kind for d in apart.differences} <= {"in place"}
    before, after = apart.figures["encoder"]
    assert after.arena_bytes > before.arena_bytes


# The command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("decided")
    safetensors.numpy.save_file(mlp_weights(), folder / "mlp.safetensors")
    assert main(["compile", str(MLP), *options(folder), "-o", str(folder / "a.aicf")]) == 0
    return folder


def options(folder: Path) -> list[str]:
    return ["--dims", "N=1,3", "--target", "cpu:x86-64-v3", "--weights", str(folder / "mlp.safetensors")]


def test_the_commands_make_the_round_trip(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, c, policy = (folder / name for name in ("a.aicf", "b.aicf", "c.aicf", "p.yaml"))
    assert main(["policy", "extract", str(a), "-o", str(policy)]) == 0
    assert policy.read_text().startswith(
        f"# Decisions of {a}: aicf policy apply MODEL THIS -o OUTPUT --target cpu:x86-64-v3 --dims 'N=1,3'\n"
    )
    assert main(["policy", "apply", str(MLP), str(policy), *options(folder), "-o", str(b)]) == 0
    capsys.readouterr()
    assert main(["diff", str(a), str(b)]) == 0
    assert capsys.readouterr().out == f"{a} and {b}: the same decisions, 11 instructions\n"
    first, again = (artifact.read(path) for path in (a, b))
    assert first.entry(NATIVE) == again.entry(NATIVE)
    texts = (stripped(parse_module(file.text(EMIT), "emit")) for file in (first, again))
    assert next(texts) == next(texts)

    edited = yaml.safe_load(policy.read_text())
    edited["kernel"]["kernels"]["fc2@N=3"] = "cpu.gemm_portable"
    policy.write_text(yaml.safe_dump(edited))
    arguments = ["policy", "apply", str(MLP), str(policy), *options(folder), "-o", str(c)]
    assert main(arguments) == 1
    wanted = "records.fc2@N=3.lanes: 'cpu.gemm_portable' does not offer 8; it offers 4; drop records.fc2@N=3 to leave"
    assert wanted in capsys.readouterr().err
    del edited["kernel"]["records"]["fc2@N=3"]
    policy.write_text(yaml.safe_dump(edited))
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(["diff", str(a), str(c), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(d["kind"], d["subject"]) for d in found["differences"] if d["program"] != "prepare"] == [
        ("kernel", "fc2@N=3")
    ]


def test_extract_prints_and_reads_emit_ir(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emit = folder / "emit.mlir"
    emit.write_text(artifact.read(folder / "a.aicf").text(EMIT))
    assert main(["policy", "extract", str(emit)]) == 0
    printed = Policy.from_text(capsys.readouterr().out)
    assert printed.kernel.kernels["prob@N=1"] == "cpu.generated"
    assert main(["diff", str(folder / "a.aicf"), str(emit)]) == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (MLP, "is no compiled program but logical IR; run aicf compile first"),
        (Path("gone.aicf"), "gone.aicf: error: the artifact cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_compared_is_status_2(
    folder: Path, path: Path, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(folder / "a.aicf"), str(path)]) == 2
    assert message in capsys.readouterr().err
    assert main(["policy", "extract", str(path)]) == 1


def test_a_policy_of_another_program_lists_what_this_one_has(folder: Path, tmp_path: Path) -> None:
    policy = saved_program("encoder").policy
    with pytest.raises(PolicyError) as error:
        saved_program("digits", policy)
    assert error.value.message.startswith("groups[0]: no op has the id 'linear0.")
    assert "it has: fc1.bias" in error.value.message
