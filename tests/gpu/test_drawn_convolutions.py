"""The check of drawn convolutions, on the CPU: it finds right programs right, and wrong ones wrong."""

from __future__ import annotations

import pytest

from tests.gpu import drawn_convolutions
from tests.gpu.drawn_convolutions import check


def test_a_right_program_is_right() -> None:
    found = check(1, "cpu")
    assert found.is_right and found.dtype == "f16" and str(found).startswith("ok")
    assert found.digest == check(1, "cpu").digest


def test_a_program_with_one_wrong_element_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    meaning = drawn_convolutions.run_program

    def wrong(*args: object) -> object:
        results = meaning(*args)
        next(iter(results.values())).flat[0] += 1.0
        return results

    monkeypatch.setattr(drawn_convolutions, "run_program", wrong)
    found = check(1, "cpu")
    assert not found.is_right and str(found).startswith("WRONG")


def test_a_program_that_does_not_compile_says_why() -> None:
    found = check(1, "cuda:sm_20")
    assert not found.is_right and "sm_20" in str(found)
