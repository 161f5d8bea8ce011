"""What `aicf tune --search` shows."""

from __future__ import annotations

import sys

import pytest

from aicf.tools.cli.search_display import outcome_table, search_display
from aicf.tuning.work_search import Outcome, Standing

BETTER = Standing("conv2", 3, 367.1, 293.9, "cpu.conv_avx512 algorithm=winograd", 24, 0, 192)
SAME = Standing("conv4", 1, 323.0, 323.0, "cpu.conv_avx512 algorithm=direct", 31, 2, 174)
FIRST = Standing("conv0", 1, 30.6, 30.6, "cpu.conv_avx512", 1, 0, 124)
CUT = Standing("conv0", 1, 30.6, None, "", 0, 0, 124)


def test_a_row_for_each_piece_of_work():
    outcomes = [
        Outcome(BETTER, 1.25, 0.02, is_done=False),
        Outcome(SAME, 1.0, 0.01, is_done=True),
        Outcome(SAME, 1.02, 0.05, is_done=True),
        Outcome(CUT, None, 0.01, is_done=False),
    ]
    lines = outcome_table(outcomes).splitlines()
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[1:5]]
    assert cells == [
        ["conv2", "3", "367.10", "293.90", "1.25 x +- 0.02", "24 of 192, cut", BETTER.best],
        ["conv4", "1", "323.00", "323.00", "untuned is best", "31 of 174, 2 failed", SAME.best],
        [
            "conv4",
            "1",
            "323.00",
            "323.00",
            "1.02 x +- 0.05, within the noise",
            "31 of 174, 2 failed",
            SAME.best,
        ],
        ["conv0", "1", "30.60", "not compared", "0 of 124, cut"],
    ]
    assert lines[5] == (
        "1 of 4 pieces of work are faster by more than the noise; 2 were cut by the time, and the same command goes on "
        "with them"
    )

    first = outcome_table([Outcome(FIRST, 1.0, 0.01, is_done=False)]).splitlines()[1]
    assert "not compared" in first and "1 of 124, cut" in first


def test_a_bar_on_a_terminal_says_what_is_searched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    with search_display(60.0) as report:
        report(BETTER, 41.6)
        report(CUT, 40.0)
        report(BETTER, 39.6)
    err = capsys.readouterr().err
    assert "searching conv2: 293.90 us, 1.25 x, tried 24" in err and "40 s left" in err


def test_a_log_gets_no_bar(capsys: pytest.CaptureFixture[str]):
    with search_display(60.0) as report:
        report(BETTER, 41.6)
    assert capsys.readouterr().err == ""
