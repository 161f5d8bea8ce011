"""`aicf tune`: what it measures, with a device of the test's own and with this machine's processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aicf.compilation.compiler import compile
from aicf.compilation.record import Options
from aicf.compilation.stages import print_module
from aicf.errors import ArtifactError, BackendUnavailable, CaptureError, PolicyError
from aicf.policies.tuning_table import TuningTable
from aicf.tools.aicf_cli import main
from aicf.training.forward import read_forward
from aicf.training.losses import MSELoss
from aicf.training.optimizers import SGD
from aicf.training.step_graph import Recipe, write_step
from aicf.tuning import cases as folder
from aicf.tuning.candidates import spread
from aicf.tuning.devices import open_device
from aicf.tuning.growing_table import GrowingTable
from aicf.tuning.host_device import fill
from aicf.tuning.measure import Variant, header_of, timing_of
from aicf.tuning.plan import prepare

from .programs import TARGET, TWO_PRODUCTS, FakeDevice, fresh_kernels, measured, prepared, silent, table_of

__all__ = ["fresh_kernels"]

TWICE = """
func.func @twice(
    %x : tensor<8x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"},
    %v : tensor<8x8xf32> {logical.name = "v", logical.role = "param"})
    -> (tensor<8x8xf32> {logical.name = "y"}) {
  %first = logical.matmul %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %second = logical.matmul %first, %v : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %second : tensor<8x8xf32>
}
"""
TRAINED = """
func.func @layer(
    %x : tensor<8x8xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<8x8xf32> {logical.name = "prediction"}) {
  %p = logical.matmul %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  func.return %p : tensor<8x8xf32>
}
"""
TIMES = {"cpu.gemm_avx2": 3.0, "cpu.gemm_portable": 4.0}


def test_every_legal_kernel_of_every_work_is_a_case():
    cases = prepared().cases
    assert sorted((case.group, case.kernel) for case in cases) == [
        ("first", "cpu.gemm_avx2"),
        ("first", "cpu.gemm_portable"),
        ("second", "cpu.gemm_avx2"),
        ("second", "cpu.gemm_portable"),
    ]


def test_equal_work_is_measured_once():
    """Names of groups and operands, and where the input comes from, make no difference."""
    assert {case.group for case in prepared(TWICE).cases} == {"first"}
    kernels = compile(
        TWICE, {n: np.eye(8, dtype=np.float32) for n in "wv"}, TARGET, tuning=measured(TIMES, TWICE)
    )
    assert [d.because for d in kernels.decisions if d.made_by == "select-kernels"][1:] == [
        "lowest measured time, cold"
    ] * 2


INDEXED = """
func.func @indexed(
    %x : tensor<40x8xf32> {logical.name = "x", logical.role = "input"},
    %i : tensor<16x1xi64> {logical.name = "i", logical.role = "input"},
    %n : tensor<16xi32> {logical.name = "n", logical.role = "input"})
    -> (tensor<16x1x8xf32> {logical.name = "read"}, tensor<70x8xf32> {logical.name = "sums"},
        tensor<16xi32> {logical.name = "next"}) {
  %read = logical.gather %x, %i {axis = 0} : (tensor<40x8xf32>, tensor<16x1xi64>) -> tensor<16x1x8xf32>
  %zero = logical.constant dense<0.0> : tensor<70x8xf32>
  %rows = logical.reshape %read : tensor<16x1x8xf32> -> tensor<16x8xf32>
  %sums = logical.scatter %zero, %n, %rows {mode = "add"}
      : (tensor<70x8xf32>, tensor<16xi32>, tensor<16x8xf32>) -> tensor<70x8xf32>
  %next = logical.add %n, %n : tensor<16xi32>
  func.return %read, %sums, %next : tensor<16x1x8xf32>, tensor<70x8xf32>, tensor<16xi32>
}
"""


def test_indices_choose_among_all_rows():
    """A gather and a scatter are as fast as their memory lets them be; what is only counted stays small."""
    found = {
        (memory.dtype, memory.numbers)
        for case in prepared(INDEXED).cases
        for memory in case.memory
        if memory.dtype in ("i32", "i64")
    }
    assert found == {("i64", 40), ("i32", 70), ("i32", 2)}
    indices = np.zeros(8000, np.uint8)
    fill(indices, "i64", 40, np.random.default_rng(3))
    assert set(indices.view(np.int64).tolist()) == set(range(40))


def test_variants_are_spread_over_the_values_of_their_entries():
    """The most promising comes first; a prior that prefers one split everywhere does not hide the others."""
    specs = [{"tile": tile, "split": split} for split in (8, 4, 2, 1) for tile in (32, 64, 128, 256)]
    chosen = spread(specs, 5)
    assert chosen[0] == 0 and len(set(chosen)) == 5
    assert {specs[index]["split"] for index in chosen} == {8, 4, 2, 1}
    assert {specs[index]["tile"] for index in chosen} == {32, 64, 128, 256}
    assert sorted(spread(specs, 100)) == list(range(16))
    assert spread([{}], 4) == [0]


def test_forbidden_kernels_are_not_measured():
    cases = prepared(policy='{"forbid": ["cpu.gemm_avx2"]}').cases
    assert {case.kernel for case in cases} == {"cpu.gemm_portable"}


def test_rows_hold_median_and_spread():
    table = measured(TIMES)
    assert [
        (row.kernel, row.cold.median_us, row.cold.spread_us, row.warm.median_us)
        for row in table.works[0].rows
    ] == [
        ("cpu.gemm_avx2", 3.0, 0.5, 1.5),
        ("cpu.gemm_portable", 4.0, 0.5, 2.0),
    ]
    assert timing_of([2.0]).spread_us == 0.0


def test_what_only_the_device_gives_becomes_rows():
    """Each way that the device offers is one row, with the fields that the kernel's record lacks."""
    made = prepared()
    first = replace(made.cases[0], device_fields=("algorithm",))
    offers = [Variant(first.native, {"algorithm": name}, {"algorithm": name * 2}) for name in ("a", "b")]
    device = FakeDevice(lambda kernel, spec: 1.0, offers)
    table = table_of(replace(made, cases=(first,)), device)
    assert [(row.spec, row.record) for row in table.works[0].rows] == [
        ({"algorithm": "a"}, {"algorithm": "aa"}),
        ({"algorithm": "b"}, {"algorithm": "bb"}),
    ]


def test_a_case_that_fails_is_a_row_with_its_reason_and_the_others_go_on():
    def times(kernel: str, spec: Mapping[str, object]) -> float:
        if kernel == "cpu.gemm_avx2":
            raise BackendUnavailable("a case needs more memory than there is")
        return 2.0

    for work in table_of(prepared(), FakeDevice(times)).works:
        assert [row.kernel for row in work.rows] == ["cpu.gemm_portable"]
        assert [(failure.kernel, failure.reason) for failure in work.failed] == [
            ("cpu.gemm_avx2", "a case needs more memory than there is")
        ]


def test_a_time_that_is_lost_in_noise_is_a_failure():
    """What took no longer than what stands between its runs would win against everything."""
    table = table_of(prepared(), FakeDevice(lambda kernel, _: -0.25))
    assert not any(work.rows for work in table.works)
    assert all("-0.25 us more than" in failure.reason for work in table.works for failure in work.failed)
    assert all(work.failed for work in table.works)


def test_a_library_that_offers_nothing_is_a_failure():
    cases = prepared()
    (first, *_) = cases.cases
    alone = replace(cases, cases=(replace(first, device_fields=("algorithm",)),))
    table = table_of(alone, FakeDevice(lambda kernel, _: 1.0))
    (work,) = table.works
    assert not work.rows
    assert [failure.reason for failure in work.failed] == ["the library offers no algorithm for this work"]


def test_a_lost_device_ends_the_measuring_and_the_next_one_resumes_after_it():
    """What the first process found stays, the case that broke the device is not tried again."""
    device = FakeDevice(lambda kernel, spec: 1.0)

    def times(kernel: str, spec: Mapping[str, object]) -> float:
        if kernel == "cpu.gemm_portable":
            device.lost = True
            raise CaptureError("instruction 'first' touched foreign memory")
        return 1.0

    device.times = times
    made = prepared()
    first = table_of(made, device)
    assert [len(work.rows) + len(work.failed) for work in first.works] == [2]
    measured: list[str] = []
    both = table_of(made, FakeDevice(lambda kernel, _: 3.0), measured.append, first)
    assert len(measured) == 2 and all("second: " in what for what in measured)
    assert sorted(len(work.rows) for work in both.works) == [1, 2]


def test_a_folder_gives_the_same_cases_back(tmp_path: Path):
    made = prepared()
    folder.save(made, tmp_path)
    assert folder.load(tmp_path) == made
    with_neighbour = replace(made, neighbour=made.cases[1])
    folder.save(with_neighbour, tmp_path)
    assert folder.load(tmp_path) == with_neighbour


def test_damaged_and_foreign_folders_are_refused(tmp_path: Path):
    with pytest.raises(ArtifactError, match="holds no prepared cases.*--prepare"):
        folder.load(tmp_path)
    made = prepared()
    folder.save(made, tmp_path)
    code = next(path for path in tmp_path.iterdir() if path.name != folder.INDEX)
    code.write_bytes(b"x" + code.read_bytes()[1:])
    with pytest.raises(ArtifactError, match="is damaged; prepare the cases again"):
        folder.load(tmp_path)


def test_a_table_of_one_device_takes_other_models_and_no_other_device():
    joined = table_of(prepared(), FakeDevice(lambda kernel, _: TIMES[kernel]), older=measured(TIMES, TWICE))
    assert len(joined.works) == 3
    made, another = prepared(), FakeDevice(lambda kernel, spec: 1.0, name="another")
    with pytest.raises(PolicyError, match="the table has device a fake device, now it is another.*--replace"):
        GrowingTable(header_of(made.setting, another), joined)


def test_emit_programs_and_backends_without_times_are_refused():
    emit = compile(TWO_PRODUCTS, target=TARGET).ir("emit")
    with pytest.raises(PolicyError, match="aicf tune takes logical IR"):
        prepare(emit, Options("", "", "", 1), 16, silent)
    reference = prepare(TWO_PRODUCTS, Options("reference", "", "", 1), 16, silent)
    with pytest.raises(
        PolicyError, match="backend 'reference' cannot be measured; those that can: cpu, cuda"
    ):
        open_device(reference.setting)


# On this machine


def test_the_command_measures_here_and_compile_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model, table = tmp_path / "two.mlir", tmp_path / "tuning.json"
    model.write_text(TWO_PRODUCTS)
    assert main(["tune", str(model), "-o", str(table), "--policy", '{"forbid": ["cpu.gemm_blas"]}']) == 0
    found = TuningTable.load(table)
    assert len(found.works) == 2 and all(row.cold.median_us > 0 for work in found.works for row in work.rows)
    rng = np.random.default_rng(7)
    x, a, b = (rng.standard_normal(shape, np.float32) for shape in ((16, 32), (32, 24), (24, 8)))
    exe = compile(model, tuning=table)
    np.testing.assert_allclose(exe(x, a, b), x @ a @ b, rtol=1e-4, atol=1e-4)
    measured_ones = [d for d in exe.decisions if "measured time" in d.because]
    assert len(measured_ones) == 2
    assert main(["compile", str(model), "--tuning", str(table), "-o", str(tmp_path / "m.aicf")]) == 0


def test_preparing_and_measuring_apart(tmp_path: Path):
    model, table = tmp_path / "two.mlir", tmp_path / "tuning.json"
    model.write_text(TWO_PRODUCTS)
    assert main(["tune", str(model), "--prepare", str(tmp_path / "cases")]) == 0
    assert main(["tune", "--measure", str(tmp_path / "cases"), "-o", str(table)]) == 0
    assert main(["tune", "--measure", str(tmp_path / "cases"), "-o", str(table)]) == 0
    assert len(TuningTable.load(table).works) == 2


def test_a_training_step_is_measured_as_it_is_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """With its metas on the host the rate is no work of the program; what tests for NaN is work of it."""
    model, folders = tmp_path / "step.mlir", [tmp_path / "plain", tmp_path / "other"]
    recipe = Recipe(MSELoss(), SGD(0.1, momentum=0.9))
    model.write_text(print_module(write_step(read_forward(TRAINED), recipe).graph.module()))
    command = ["tune", str(model), "--target", TARGET, "--variants", "1", "--prepare"]
    assert main([*command, str(folders[0])]) == 0
    assert main([*command, str(folders[1]), "--meta", "host", "--check-finite"]) == 0
    baseline, other = ({case.group for case in folder.load(each).cases} for each in folders)
    assert baseline - other == {"lr"} and other - baseline == {"step.now.nothing_1"}


@pytest.mark.parametrize(
    ("option", "message"),
    [(["--meta", "host"], "meta: the program has no counter"), (["--check-finite"], "check-finite")],
)
def test_options_of_training_are_refused_for_other_programs(
    option: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    model = tmp_path / "two.mlir"
    model.write_text(TWO_PRODUCTS)
    assert main(["tune", str(model), "--prepare", str(tmp_path / "cases"), *option]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["m.mlir"],
        ["--measure", "d"],
        ["m.mlir", "--measure", "d", "-o", "t"],
        ["m.mlir", "--prepare", "d", "-o", "t"],
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(arguments: list[str]):
    assert main(["tune", *arguments]) == 2
