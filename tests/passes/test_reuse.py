"""Orders by reuse: the model of the cache, the order found, and the values of programs that were put into it."""

from __future__ import annotations

from random import Random

import numpy as np
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.dialects.emit_ledger import DecisionOp
from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.emit.reuse import MOST_READERS, Cache, Step, memory_bytes, reuse_order
from tests.passes.test_raise_emit import TARGET, compiled, stripped


def test_what_was_not_touched_for_longest_leaves_first() -> None:
    cache = Cache(10)
    assert [cache.touch("a", 4), cache.touch("b", 4), cache.touch("a", 4)] == [[], [], []]
    assert cache.touch("c", 4) == ["b"]
    assert cache.touch("huge", 11) == ["a", "c", "huge"]
    assert (cache.used, list(cache.held)) == (0, [])


def branches(count: int) -> tuple[list[Step], list[set[int]]]:
    """`count` steps that each read `x` and write 4 bytes, then the readers of these."""
    first = [Step({"x": 4}, {branch: 4}) for branch in range(count)]
    second = [Step({branch: 4}, {("y", branch): 4}) for branch in range(count)]
    return [*first, *second], [*(set[int]() for _ in first), *({branch} for branch in range(count))]


def test_branches_are_run_to_their_end() -> None:
    steps, after = branches(3)
    assert reuse_order(steps, after, 12) == [0, 3, 1, 4, 2, 5]
    assert memory_bytes(steps, 12) == 4 + 3 * 4
    assert memory_bytes([steps[step] for step in (0, 3, 1, 4, 2, 5)], 12) == 4


def test_a_buffer_with_many_readers_leads_none() -> None:
    """The first step brings in what all read: with few readers they come before what was written before them."""
    for readers, expected in ((MOST_READERS, [0, 2]), (MOST_READERS + 1, [0, 1])):
        steps = [Step({"w": 4}, {}), Step({"other": 4}, {}), *[Step({"w": 4}, {})] * (readers - 1)]
        assert reuse_order(steps, [set[int]() for _ in steps], 100)[:2] == expected


def test_an_order_found_is_found_again() -> None:
    """For random programs: every edge is kept, and the order of what is written in the order found is the text's."""
    random = Random(5)
    for _ in range(40):
        steps, after = random_steps(random, 60)
        order = reuse_order(steps, after, 40)
        at = {step: number for number, step in enumerate(order)}
        assert sorted(order) == list(range(len(steps)))
        assert all(at[source] < at[step] for step, sources in enumerate(after) for source in sources)
        moved = [steps[step] for step in order]
        again = reuse_order(moved, [{at[source] for source in after[step]} for step in order], 40)
        assert again == list(range(len(steps)))


def random_steps(random: Random, count: int) -> tuple[list[Step], list[set[int]]]:
    """Steps that each read results of up to two earlier ones and a weight, of random sizes."""
    steps: list[Step] = []
    after: list[set[int]] = []
    for step in range(count):
        sources = set(random.sample(range(step), min(step, random.randrange(3))))
        reads = {source: steps[source].writes[source] for source in sorted(sources)}
        steps.append(Step({**reads, f"w{random.randrange(4)}": 8}, {step: random.randrange(1, 16)}))
        after.append(sources)
    return steps, after


def breadth_first() -> aicf.Graph:
    """Three sums of rows apart, all first halves in front, of more than the cache of a core holds."""
    graph = aicf.Graph("wide")
    inputs = [graph.input(f"x{branch}", (256, 640)) for branch in range(3)]
    hidden = [graph.softmax(value, 1) for value in inputs]
    for branch, value in enumerate(hidden):
        graph.output(graph.softmax(value, 0), f"y{branch}")
    return graph


def softmax(value: np.ndarray, axis: int) -> np.ndarray:
    exp = np.exp(value - value.max(axis, keepdims=True))
    return exp / exp.sum(axis, keepdims=True)


def test_a_breadth_first_program_computes_the_same_in_its_new_order() -> None:
    random = np.random.default_rng(7)
    inputs = [random.normal(size=(256, 640)).astype(np.float32) for _ in range(3)]
    by_reuse = aicf.compile(breadth_first(), {}, TARGET)
    in_text = aicf.compile(breadth_first(), {}, TARGET, policy=aicf.ExecutionPolicy(order="text"))
    for value, moved, kept in zip(inputs, by_reuse(*inputs), in_text(*inputs), strict=True):
        np.testing.assert_array_equal(moved, kept)
        expected = softmax(softmax(value.astype(np.float64), 1), 0)
        np.testing.assert_allclose(moved, expected, rtol=2e-5)
    assert by_reuse.plan.programs[0].arena_bytes < in_text.plan.programs[0].arena_bytes


def test_a_raised_program_keeps_its_new_order() -> None:
    module = breadth_first().module()
    compiled(module, TARGET)
    assert "order by reuse" in choices(module)
    first = stripped(module)
    raised = parse_module(str(module), "moved")
    RaiseEmitPass().apply(make_context(), raised)
    verify_module(raised)
    compiled(raised, start="lowered")
    assert "order by reuse" not in choices(raised)
    assert stripped(raised) == first


def choices(module: ModuleOp) -> list[str]:
    return [op.choice.data for op in module.walk() if isinstance(op, DecisionOp)]
