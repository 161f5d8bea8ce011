"""Tuning tables as data: what is written is read back, and what cannot be trusted is refused with the way out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aicf.errors import PolicyError
from aicf.policies.tuning_table import (
    Failure,
    Header,
    MeasuredWorkload,
    OperandKey,
    Row,
    Timing,
    TuningTable,
    WorkloadKey,
    check_header,
    resolve_tuning,
)

HEADER = Header("cuda", "sm_90a", 1, "NVIDIA H100", "580.95", {"cublasLt": "13.0.2"}, {"numba-cuda": "0.30"})


def work(m: int) -> WorkloadKey:
    operand = OperandKey("data", "f16", (m, 64), (64, 1), 256)
    return WorkloadKey("gemm", {"transpose_a": False}, "0123456789abcdef", (operand, operand), (operand,))


def row(kernel: str, cold: float, **spec: object) -> Row:
    return Row(kernel, 2, spec, {}, Timing(cold, 0.1), Timing(cold / 2, 0.05))


def table() -> TuningTable:
    found = [
        MeasuredWorkload(work(m).digest, work(m), (row("cuda.b", 3.5, tile=[64, 64]), row("cuda.a", 2.25)))
        for m in (32, 16)
    ]
    return TuningTable(HEADER).with_works(found)


def test_text_gives_the_same_table_back_and_is_stable():
    text = table().to_json()
    assert TuningTable.from_text(text) == table()
    assert TuningTable.from_text(text).to_json() == text
    assert TuningTable.from_text(table().to_line()) == table()
    assert "\n" not in table().to_line()


def test_the_order_of_measuring_leaves_no_trace():
    """Works by kind and key, rows by time: measuring again gives a small diff."""
    forwards = table()
    backwards = TuningTable(HEADER).with_works(tuple(reversed(forwards.works)))
    assert forwards.to_json() == backwards.to_json()
    assert [entry.kernel for entry in forwards.works[0].rows] == ["cuda.a", "cuda.b"]


def test_works_are_found_by_everything_that_decides_their_time():
    found = table().find(work(32))
    assert found is not None and found.key == work(32).digest
    assert table().find(work(33)) is None
    assert work(32).digest != work(16).digest


def test_a_table_can_be_narrowed_and_extended():
    key = work(16).digest
    assert [entry.key for entry in table().only({key}).works] == [key]
    faster = MeasuredWorkload(key, work(16), (row("cuda.c", 1.0),))
    grown = table().with_works([faster])
    found = grown.find(work(16))
    assert len(grown.works) == 2 and found is not None
    assert [entry.kernel for entry in found.rows] == ["cuda.c", "cuda.a", "cuda.b"]


def test_of_a_variant_that_was_measured_again_the_newer_result_stays():
    """A time replaces a time or a failure and the other way round; rows of other variants stay, unless their kernel
    has another version now."""
    key = work(16).digest
    older = MeasuredWorkload(
        key,
        work(16),
        (row("cuda.a", 2.0), row("cuda.b", 3.0, tile=64), row("cuda.b", 4.0, tile=32)),
        (Failure("cuda.c", 2, {}, "too large"), Failure("cuda.d", 1, {}, "it is old")),
    )
    newer = MeasuredWorkload(
        key,
        work(16),
        (row("cuda.c", 1.0), row("cuda.d", 6.0, tile=64)),
        (Failure("cuda.b", 2, {"tile": 64}, "it hangs"),),
    )
    merged = older.merged(newer)
    assert {(entry.label, entry.cold.median_us) for entry in merged.rows} == {
        ("cuda.a", 2.0),
        ("cuda.b tile=32", 4.0),
        ("cuda.c", 1.0),
        ("cuda.d tile=64", 6.0),
    }
    assert [entry.label for entry in merged.failed] == ["cuda.b tile=64"]


def test_labels_name_the_variant():
    assert row("cuda.b", 1.0, tile=[64, 128], stages=4).label == "cuda.b tile=[64,128] stages=4"
    assert row("cuda.a", 1.0).label == "cuda.a"


def test_files_and_inline_text(tmp_path: Path):
    path = tmp_path / "tuning.json"
    table().save(path)
    assert resolve_tuning(str(path)) == resolve_tuning(table().to_line()) == table()


def edited(**fields: object) -> str:
    return json.dumps({**json.loads(table().to_json()), **fields})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no json", "tuning table: no JSON"),
        ("[1]", "tuning table must be an object"),
        (edited(format="other"), "format: 'other' is no tuning table"),
        (edited(version=9), r"version: 9 is not known here.*aicf tune MODEL --target cuda:sm_90a"),
        (edited(works=[{}]), r"tuning table.works\[0\] lacks field"),
        (edited(more=1), "unknown field 'more'"),
    ],
)
def test_what_is_no_table_is_refused(text: str, message: str):
    with pytest.raises(PolicyError, match=message):
        TuningTable.from_text(text)


def test_an_edited_description_is_refused():
    """A key stands for its work: changing the shape in the file must not move the times to other work."""
    with pytest.raises(PolicyError, match="is not that of its work"):
        TuningTable.from_text(table().to_json().replace("[32, 64]", "[48, 64]"))


def test_a_missing_file_says_how_to_make_it(tmp_path: Path):
    with pytest.raises(PolicyError, match="cannot be read.*aicf tune MODEL -o"):
        TuningTable.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("backend", "arch", "threads", "libraries", "message"),
    [
        ("cpu", "x86-64-v3", 1, {}, "with target cuda:sm_90a, this program is for target cpu:x86-64-v3"),
        ("cuda", "sm_80", 1, {}, "aicf tune MODEL --target cuda:sm_80 -o"),
        ("cuda", "sm_90a", 2, {}, "threads 1, this program is for threads 2"),
        ("cuda", "sm_90a", 1, {"cublasLt": "13.1.0"}, "library cublasLt 13.0.2, .* library cublasLt 13.1.0"),
    ],
)
def test_a_table_of_another_target_is_refused(
    backend: str, arch: str, threads: int, libraries: dict[str, str], message: str
):
    with pytest.raises(PolicyError, match=message):
        check_header(HEADER, backend, arch, threads, libraries)


def test_a_table_of_the_target_holds():
    check_header(HEADER, "cuda", "sm_90a", 1, {"cublasLt": "13.0.2", "unmeasured": "1"})
