"""Bad input of `aicf tune` and of `--tuning`: one line that says what is wrong and the way out, and no file written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aicf.errors import CaptureError
from aicf.policies.tuning_table import Header, TuningTable
from aicf.tools.aicf_cli import main
from aicf.tuning import cases as folder
from aicf.tuning import cuda_device, plan, tune
from tests.backends.cuda.conftest import gpu
from tests.backends.cuda.fake_driver import HOPPER, FakeDriver

from .programs import TWO_PRODUCTS, FakeDevice, fresh_kernels
from .test_cuda_device import ONE, case, prepared

__all__ = ["fresh_kernels", "gpu"]

H100 = TuningTable(Header("cuda", "sm_90a", 1, "NVIDIA H100", "13.0", {}, {}))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, cuda cases and tables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cuda_device, "FLUSH_BYTES", 1 << 20)
    (tmp_path / "two.mlir").write_text(TWO_PRODUCTS)
    (tmp_path / "text.json").write_text("no table\n")
    H100.save(tmp_path / "h100.json")
    folder.save(prepared(case(ONE)), tmp_path / "cases")
    return tmp_path


MEASURE = ["tune", "--measure", "cases", "-o", "out.json"]
COMPILE = ["compile", "two.mlir", "-o", "out.json", "--tuning"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (MEASURE, "there is no NVIDIA GPU here"),
        (
            [*MEASURE[:3], "-o", "no/out.json"],
            "no/out.json: error: cannot write the tuning table: No such file",
        ),
        (
            ["tune", "--measure", "no", "-o", "out.json"],
            "'no' holds no prepared cases: No such file or directory; `aicf",
        ),
        (
            [*COMPILE, "h100.json", "--target", "cuda:sm_90a", "--threads", "2"],
            "aicf tune MODEL --target cuda:sm_90a --threads 2 -o tuning.json",
        ),
        (["tune", "--measure", "two.mlir", "-o", "out.json"], "'two.mlir' holds no prepared cases"),
        (["tune", "nowhere.mlir", "-o", "out.json"], "nowhere.mlir"),
        (["tune", "two.mlir", "-o", "out.json", "--target", "cuda:sm_42"], "sm_42"),
        (["tune", "two.mlir", "-o", "out.json", "--target", "reference"], "'reference' cannot be measured"),
        ([*COMPILE, "nowhere.json"], "`aicf tune MODEL -o nowhere.json` writes one"),
        ([*COMPILE, "text.json"], "text.json: no JSON"),
        (
            [*COMPILE, "h100.json"],
            "measured on NVIDIA H100 with target cuda:sm_90a, this program is for target cpu:",
        ),
        (
            [*COMPILE, "h100.json", "--target", "cuda:sm_80"],
            "measure again on the device: aicf tune MODEL --target cuda:sm_80 -o tuning.json",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], message: str, here: Path, gpu: FakeDriver, capsys: pytest.CaptureFixture[str]
):
    gpu.device = None
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert message in err and err.strip().count("\n") == 0
    assert not (here / "out.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.json", "--target", "cuda"], "`aicf tune MODEL --prepare FOLDER` compiles without one"),
        (
            ["-o", "out.json", "--target", "cuda:sm_90a"],
            "there is no device of backend 'cuda' here; `aicf tune",
        ),
        (
            ["-o", "no/out.json"],
            "no/out.json: error: cannot write the tuning table: No such file or directory",
        ),
        (["-o", "text.json"], "text.json: no JSON"),
    ],
)
def test_what_could_not_be_measured_or_kept_is_not_compiled(
    arguments: list[str],
    message: str,
    here: Path,
    gpu: FakeDriver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    gpu.device = None
    monkeypatch.setattr(plan, "plan", None)
    assert main(["tune", "two.mlir", *arguments]) == 1
    err = capsys.readouterr().err
    assert message in err and err.strip().count("\n") == 0


def test_a_gpu_of_another_architecture_measures_nothing(
    here: Path, gpu: FakeDriver, capsys: pytest.CaptureFixture[str]
):
    gpu.device = replace(HOPPER, capability=80)
    gpu.kernels["k"] = lambda values: None
    assert main(MEASURE) == 1
    err = capsys.readouterr().err
    assert "nothing could be measured; cuda.add failed: the code is for sm_90a" in err
    assert "compile with --target cuda:sm_80" in err and not (here / "out.json").exists()


def test_a_table_of_another_gpu_is_not_added_to(
    here: Path, gpu: FakeDriver, capsys: pytest.CaptureFixture[str]
):
    """It stays as it was, and nothing is measured for it."""
    gpu.kernels["k"] = lambda values: None
    before = (here / "h100.json").read_bytes()
    assert main(["tune", "--measure", "cases", "-o", "h100.json"]) == 1
    err = capsys.readouterr().err
    assert (
        "the table has device NVIDIA H100, now it is" in err and "give -o another file, or --replace" in err
    )
    assert (here / "h100.json").read_bytes() == before and not gpu.named("allocate")


def test_a_lost_device_is_told_and_what_was_measured_is_kept(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    measured: list[str] = []
    device = FakeDevice(lambda kernel, spec: 1.0)

    def times(kernel: str, spec: object) -> float:
        measured.append(kernel)
        if len(measured) == 2:
            device.lost = True
            raise CaptureError("a kernel touched foreign memory")
        return 1.0

    device.times = times
    monkeypatch.setattr(tune, "open_device", lambda prepared: device)
    assert main(["tune", "two.mlir", "-o", "out.json", "--target", "cpu:x86-64-v3"]) == 1
    err = capsys.readouterr().err
    assert "failed: a kernel touched foreign memory" in err
    assert "it left a fake device useless to this process: run the command again, which goes on" in err
    assert sum(len(work.rows) for work in TuningTable.load(here / "out.json").works) == 1
