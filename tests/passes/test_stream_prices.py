"""The predicted time of programs on several streams, and the number of streams that `schedule` takes from it."""

from __future__ import annotations

import re

import pytest

import aicf
from aicf.dialects.emit import ResolvedOp
from aicf.dialects.emit_ledger import DecisionOp
from aicf.frontends.text import make_context
from aicf.passes.emit.stream_prices import Step, predicted_us
from aicf.passes.pipelines.aicf_inference import AicfInferencePass


def test_a_chain_takes_the_sum() -> None:
    steps = [Step(3.0, 1.0, 0, ()), Step(4.0, 0.1, 0, (0,)), Step(5.0, 1.0, 0, (1,))]
    assert predicted_us(steps, 1.0) == pytest.approx(12.0)


def test_branches_that_leave_room_run_side_by_side() -> None:
    """10 and 4 on two streams, then what joins them 1 us after the longer one, which is on the other stream."""
    steps = [Step(10.0, 0.3, 0, ()), Step(4.0, 0.5, 1, ()), Step(2.0, 0.1, 1, (0, 1))]
    assert predicted_us(steps, 1.0) == pytest.approx(10.0 + 1.0 + 2.0)


def test_full_branches_slow_each_other_down() -> None:
    """Each takes the whole device: both at half speed until the short one ends, then the long one alone."""
    steps = [Step(10.0, 1.0, 0, ()), Step(4.0, 1.0, 1, ()), Step(2.0, 1.0, 0, (0,))]
    assert predicted_us(steps, 1.0) == pytest.approx(8.0 + 6.0 + 2.0)


def test_a_late_start_meets_what_runs() -> None:
    """The second branch starts after 3 us (and a join); from then on shares of 0.8 each slow both by 1.6."""
    steps = [Step(2.0, 0.2, 0, ()), Step(10.0, 0.8, 0, (0,)), Step(4.0, 0.8, 1, (0,))]
    # 2 us, then 1 us alone, then 4 us of the short one at 1.6: 6.4, in which the long one also does 4; 5 left.
    assert predicted_us(steps, 1.0) == pytest.approx(2.0 + 1.0 + 6.4 + 5.0)


def _two_branches(rows: int) -> aicf.Graph:
    """Two products in a row, twice, of different inputs [rows, 256]."""
    graph = aicf.Graph("branches")
    for branch in ("a", "b"):
        value = graph.input(branch, (rows, 256), "f32")
        for layer in range(2):
            value = graph.matmul(value, graph.param(f"{branch}.{layer}", (256, 256), "f32"))
        graph.output(value, f"y.{branch}")
    return graph


def _streams(rows: int, target: str) -> tuple[int, str]:
    module = _two_branches(rows).module()
    AicfInferencePass(target=target).apply(make_context(), module)
    *_, reason = [
        op.because.data
        for op in module.walk()
        if isinstance(op, DecisionOp) and op.pass_name.data == "schedule"
    ]
    return len({op.stream for op in module.walk() if isinstance(op, ResolvedOp)}), reason


@pytest.mark.parametrize(
    ("rows", "target", "streams", "reason"),
    [
        (64, "cuda:sm_90a", 2, "2 edges order every conflicting pair; predicted "),
        (65536, "cuda:sm_90a", 1, "3 edges order every conflicting pair; predicted "),
        (
            16,
            "cpu:x86-64-v3",
            1,
            "3 edges order every conflicting pair; instructions run one after the other",
        ),
    ],
)
def test_streams_are_as_many_as_pay(rows: int, target: str, streams: int, reason: str) -> None:
    """Small branches run side by side on a GPU, those that fill it do not, and a CPU runs one after the other."""
    found, because = _streams(rows, target)
    assert found == streams
    assert re.sub(r", \d of them programmatic,", "", because).startswith(reason)
