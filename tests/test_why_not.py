"""Why two ops are not one instruction, and the summary of a compiled program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.errors import InputMismatch
from aicf.tools.aicf_cli import main
from tests.gpu.programs import encoder, random_arrays
from tests.support.multi_output_programs import built as several
from tests.test_compiler import MLP, mlp_weights


@pytest.fixture(scope="module")
def mlp() -> aicf.CompiledModel:
    return aicf.compile(MLP, mlp_weights(), "cpu:x86-64-v3", dims="N=1,3", policy={"fusion": {"norm": False}})


@pytest.fixture(scope="module")
def block() -> aicf.CompiledModel:
    graph = encoder("f32", 2, 16, 4, 16)
    arrays = random_arrays(graph.module(), "block")
    return aicf.compile(graph, {name: a for name, a in arrays.items() if name != "x"}, "cpu:x86-64-v3")


def test_ops_of_one_instruction(mlp: aicf.CompiledModel) -> None:
    answer = mlp.why_not("fc1", "relu1")
    assert str(answer).startswith(f"fc1 ({MLP}:11:3) and relu1 ({MLP}:12:3) are one instruction:\n")
    assert [line.partition(",")[0] for line in answer.together] == [
        "@digits@N=1: instruction fc1@N=1",
        "@digits@N=3: instruction fc1@N=3",
    ]
    assert not answer.because


OF_FC3 = [
    "fuse-norms of fc3.matmul: norm fusion is off by policy (fusion.norm)",
    "fuse-epilogues of fc3, tried with prob.max: only elementwise ops of the product's shape can be its epilogue, and "
    "it is reduce_max",
    "fuse-epilogues of fc3, tried with prob.sub: it also reads 'prob.max.broadcast', which cannot be fused",
]
REFUSALS = [
    ("fc3", "prob", OF_FC3),  # of the two themselves, said once for all buckets
    ("fc3.bias", "prob.exp", OF_FC3),  # of ops that are in their instructions
    ("prob", "fc1", ["what prob reads of fc1 goes through fc2, fc3"]),  # none: others lie between them
]


@pytest.mark.parametrize(("one", "other", "because"), REFUSALS)
def test_every_refusal_has_its_reason(
    mlp: aicf.CompiledModel, one: str, other: str, because: list[str]
) -> None:
    assert list(mlp.why_not(one, other).because) == because


def test_what_a_pass_decided_on_cost_or_by_policy() -> None:
    switches = {"fusion": {"attention": False, "horizontal": False}}
    graph = encoder("f32", 2, 16, 4, 16)
    arrays = random_arrays(graph.module(), "block")
    weights = {name: a for name, a in arrays.items() if name != "x"}
    exe = aicf.compile(graph, weights, "cpu:x86-64-v3", policy=switches)
    assert list(exe.why_not("matmul0", "matmul1").because) == [
        "fuse-attention of matmul1: attention fusion is off by policy (fusion.attention)"
    ]
    assert list(exe.why_not("linear0", "linear2").because) == [
        "fuse-horizontal of linear0.matmul: horizontal fusion is off by policy (fusion.horizontal)"
    ]


def test_a_row_program_and_its_product(block: aicf.CompiledModel) -> None:
    because = block.why_not("layer_norm0", "linear4").because
    assert because[0] == (
        "fuse-prologues of layer_norm0.bias: 'add1' reads the rows too, so they have to be written to memory in any "
        "case"
    )


def test_ops_that_have_nothing_to_do_with_each_other() -> None:
    graph = aicf.Graph("apart")
    for name in ("a", "b"):
        graph.output(graph.softmax(graph.input(name, (4, 8)), name=f"{name}_soft"), f"{name}_out")
    exe = aicf.compile(graph, {}, "cpu:x86-64-v3")
    (because,) = exe.why_not("a_soft", "b_soft").because
    assert because.startswith("neither reads what the other makes")


def test_an_unknown_op_names_the_closest(mlp: aicf.CompiledModel) -> None:
    with pytest.raises(InputMismatch, match="no value or op 'fc9'; did you mean 'fc3' or 'fc2' or 'fc1'?"):
        mlp.why_not("fc1", "fc9")


def test_a_concatenation_that_is_a_view() -> None:
    """Elided, it is no instruction; copied, the ledger says why for each part."""
    graph = aicf.Graph("concat")
    x, y = graph.input("x", (4, 8)), graph.input("y", (4, 8))
    shown = graph.softmax(y, name="shown")
    graph.output(graph.concat([graph.exp(x, name="left"), graph.neg(y, name="right")], 1, name="both"), "a")
    graph.output(graph.concat([shown, x], 1, name="kept"), "b")
    graph.output(shown, "c")
    exe = aicf.compile(graph, {}, "cpu:x86-64-v3")
    answer = exe.why_not("left", "both")
    assert answer.apart == ("both is no instruction, but a view",)
    assert "2 of 2 parts written in place" in answer.because[0]
    assert exe.why_not("shown", "kept").because[-1].startswith("elide-concats of kept, tried with shown")


def test_the_ledger_stays_small() -> None:
    """A value with a thousand readers of another form: as many reasons as a decision has room for."""
    graph = aicf.Graph("wide")
    x = graph.exp(graph.input("x", (4, 8)), name="stem")
    graph.output(graph.concat([graph.transpose(x, (1, 0)) for _ in range(300)], 0), "y")
    exe = aicf.compile(graph, {}, "reference")
    assert max(len(decision.rejected) for decision in exe.decisions) <= 24


def test_the_command_reads_an_artifact(
    mlp: aicf.CompiledModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mlp.aicf"
    mlp.save(path)
    assert main(["explain", str(path), "--why-not", "fc3", "prob"]) == 0
    assert capsys.readouterr().out == f"{mlp.why_not('fc3', 'prob')}\n"
    assert str(aicf.load(path).why_not("fc1", "fc2")) == str(mlp.why_not("fc1", "fc2"))
    assert main(["explain", str(path), "--why-not", "fc3", "nope"]) == 1
    assert "no value or op 'nope'" in capsys.readouterr().err
    assert main(["explain", str(path), "fc1", "--why-not", "fc3", "prob"]) == 2


def test_the_summary(mlp: aicf.CompiledModel) -> None:
    summary = mlp.summary()
    assert summary.title == "mlp for cpu:x86-64-v3"
    first, second = summary.programs
    assert (first.name, first.instructions, sum(first.kernels.values())) == ("digits@N=1", 4, 4)
    rows = mlp.explain().programs[0].rows
    assert first.bytes_moved == sum(row.bytes for row in rows)
    assert first.expected_us == pytest.approx(sum(row.expected_us or np.nan for row in rows))
    assert first.arena_bytes == mlp.plan.programs[0].arena_bytes
    assert first.free_us is None
    assert summary.weight_bytes == sum(array.nbytes for array in mlp_weights().values())
    assert summary.prepared == 3
    assert str(first) in str(summary) and str(second) in str(summary)


def test_the_summary_groups_what_is_not_fused() -> None:
    exe = aicf.compile(
        MLP, mlp_weights(), "cpu:x86-64-v3", dims="N=1,3", policy={"fusion": {"epilogue": False}}
    )
    (reason,) = (each for each in exe.summary().not_fused if "epilogue" in each.because)
    assert reason.because == "epilogue fusion is off by policy (fusion.epilogue)"
    assert reason.ops == ("fc1.matmul", "fc2.matmul", "fc3.matmul")
    assert f"    {reason}" in str(exe.summary())


def test_what_joins_later_is_not_listed_as_apart() -> None:
    """Two ops that stay alone for `fuse-elementwise`, for nothing reads both, and read one value in one kernel."""
    graph = aicf.Graph("pair")
    x = graph.input("x", (256, 512))
    for name, made in (("grown", graph.exp(x, name="grown")), ("bent", graph.tanh(x, name="bent"))):
        graph.output(made, name)
    for joined in (True, False):
        exe = aicf.compile(graph, {}, "cpu:x86-64-v3", policy={"fusion": {"multi_output": joined}})
        apart = {op for reason in exe.summary().not_fused for op in reason.ops}
        assert exe.summary().programs[0].instructions == (1 if joined else 2)
        assert bool({"grown", "bent"} & apart) != joined, exe.summary()


def test_the_summary_says_what_batch_invariance_costs() -> None:
    exe = aicf.compile(
        MLP, mlp_weights(), "cpu:x86-64-v3", dims="N=1", policy={"determinism": "batch_invariant"}
    )
    (program,) = exe.summary().programs
    assert program.expected_us is not None and program.free_us is not None
    assert program.expected_us > program.free_us > 0
    assert f"{program.free_us:.2f} us if the batch might change bits" in str(program)


def test_groups_of_several_results() -> None:
    """What is one instruction with two results, and why a sum over rows is not in the one that writes its terms."""
    exe = aicf.compile(several("columns", 64, 256, "f32"), {}, "cpu:x86-64-v3")
    cut, priced = exe.why_not("mul0", "reduce_sum0").because
    assert cut.startswith(
        "fuse-elementwise of neg0, tried with reduce_sum0: with it, the instruction would write"
    )
    assert priced.startswith("fuse-multi-output of neg0, tried with reduce_sum0: predicted ")
    joined = aicf.compile(several("loss", 64, 256, "f32"), {}, "cpu:x86-64-v3").why_not(
        "sub0", "reduce_mean0"
    )
    assert joined.together and not joined.because
