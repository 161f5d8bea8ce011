"""What two programs decide differently: none of it gives the first program, all of it the second, byte for byte."""

from __future__ import annotations

import pytest

from aicf.bisection.changes import changes_between, mixed
from aicf.compilation.saved_program import SavedProgram
from aicf.policies.policy import Policy
from tests.test_saved_program import saved_program, stripped

EDITS = {
    "a kernel": ("digits", {"kernels": {"fc1@N=32": "cpu.gemm_portable"}}),
    "groups": ("digits", {"fusion": {"epilogue": False, "elementwise": False}}),
    "element types and memory": ("encoder", {"to": "bf16", "memory": "separate", "inplace": False}),
    "of a GPU": ("split norm", {"fusion": {"prologue": False}, "kernels": {"wide": "cuda.gemv"}}),
}


def pair(name: str) -> tuple[SavedProgram, SavedProgram]:
    model, edits = EDITS[name]
    return saved_program(model), saved_program(model, Policy().with_(**edits))


@pytest.mark.parametrize("name", [name for name in EDITS if name != "a kernel"])
def test_nothing_and_everything_are_the_two_programs(name: str) -> None:
    first, second = pair(name)
    changes = [change for unit in changes_between(first.module, second.module) for change in unit]
    assert changes
    for taken, wanted in (([], first), (changes, second)):
        made = saved_program(EDITS[name][0], mixed(first.module, taken))
        assert stripped(made.module) == stripped(wanted.module)


def test_a_kernel_is_one_change_with_its_record() -> None:
    first, second = pair("a kernel")
    ((change,),) = changes_between(first.module, second.module)
    assert change.title == "kernel.kernels of fc1@N=32"
    assert (change.before, change.after) == ("cpu.gemm_avx512", "cpu.gemm_portable")
    assert "tile_rows" in change.entries and "expected_us" not in change.entries
    assert change.lines()[0] == "kernel.kernels of fc1@N=32: cpu.gemm_avx512 -> cpu.gemm_portable"
    assert change.to_json_value()["entries"]["tile_rows"] == list(change.entries["tile_rows"])  # type: ignore[index]


def test_other_groups_are_a_change_and_their_kernels_others() -> None:
    first, second = pair("groups")
    units = changes_between(first.module, second.module)
    fused = next(unit for unit in units if unit[0].subject == "fc1.matmul@N=32")
    assert fused[0].before == "fc1.matmul@N=32 + fc1.bias@N=32 + relu1@N=32"
    assert fused[0].after == "fc1.matmul@N=32 | fc1.bias@N=32 | relu1@N=32"
    assert [change.field for change in fused[1:]] == ["records", "kernels", "kernels"]
    record = fused[1]
    assert record.before == record.after == "cpu.gemm_avx512" and record.entries
    assert record.lines()[0] == "kernel.records of fc1@N=32: cpu.gemm_avx512"
    groups_alone = saved_program("digits", mixed(first.module, [fused[0]]))
    left = [change.title for unit in changes_between(first.module, groups_alone.module) for change in unit]
    assert fused[0].title in left and not any("fc2" in title for title in left)


def test_equal_programs_differ_in_nothing() -> None:
    first = saved_program("digits")
    assert changes_between(first.module, saved_program("digits").module) == []
