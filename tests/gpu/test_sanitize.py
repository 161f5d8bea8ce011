"""What is made of the output of compute-sanitizer, without a GPU: a control's silence, or the tool's, is no success."""

from __future__ import annotations

import pytest

from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.runtime.storage import read
from aicf.compilation.compiled import CompiledModel
from tests.backends.cuda.sass import opcodes
from tests.gpu.artifacts import compiled
from tests.gpu.controls import CHECKED_BY, CONTROLS, UNORDERED, compiled_without_barriers
from tests.gpu.sanitize import Checked

START = "========= COMPUTE-SANITIZER\n"
CLEAN = START + "cuda.gemm_mma cuda.generated\n========= ERROR SUMMARY: 0 errors\n"
CLEAN_OF_RACES = (
    START + "cuda.copy\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
)
ASTRAY = (
    START
    + "========= Invalid __global__ read of size 2 bytes\n"
    + "=========     at gemm_0123456789abcdef+0x3f0\n"
    + "========= \n"
    + "========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to ... on CUDA API call\n"
    + "CaptureError: instruction failed\n"
    + "========= ERROR SUMMARY: 2 errors\n"
)
RACE = (
    START
    + "========= Error: Race reported between Write access at a+0x1 and Read access at b+0x2 [64 hazards]\n"
    + "cuda.gemm_simt\n"
    + "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
)


@pytest.mark.parametrize("output", [CLEAN, CLEAN_OF_RACES])
def test_silence_is_clean_only_for_a_case(output: str) -> None:
    """A case that ran to its end says its kernels; the same from a control is wrong."""
    checked = Checked.read(output, 0)
    assert checked.verdict(None) == (True, f"clean: {output.splitlines()[1]}")
    for control in CONTROLS.values():
        assert not checked.verdict(control.report)[0]


@pytest.mark.parametrize(("tool", "output"), [("memcheck", ASTRAY), ("racecheck", RACE)])
def test_a_report_is_what_a_control_must_have_and_a_case_must_not(tool: str, output: str) -> None:
    checked = Checked.read(output, 1)
    assert checked.verdict(CONTROLS[CHECKED_BY[tool]].report)[0]
    right, words = checked.verdict(None)
    assert not right and checked.reports[0] in words


@pytest.mark.parametrize("output", ["", START, START + "Traceback\n========= ERROR SUMMARY: 0 errors\n"])
def test_a_program_that_failed_was_not_checked(output: str) -> None:
    """Whatever the tool says: a wrong result, or a tool that is not there, ends with a status other than 0."""
    assert not Checked.read(output, 1).verdict(None)[0]


def test_the_control_of_racecheck_has_no_barriers() -> None:
    """The same kernel has some, where it is whole."""
    case = CONTROLS[UNORDERED].case
    assert _barriers(compiled(case)) > 0
    assert _barriers(compiled_without_barriers(case)) == 0


def _barriers(model: CompiledModel) -> int:
    _, cubins = read(model.native.code)
    return sum(opcodes(Cubin(symbol, image, 0, 0, 0))["BAR"] for symbol, image in cubins.items())


def test_a_tool_without_a_summary_has_not_checked() -> None:
    assert not Checked.read(START + "cuda.copy\n", 0).verdict(None)[0]
