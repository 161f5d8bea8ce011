"""Lifetimes, their lower bound and the placement of slots, against brute force on small random partial orders."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import f32

from aicf.dialects.emit import BindOp, EdgeAttr, ProgramOp, ResolvedOp, SlotOp
from aicf.dialects.emit_types import BufferType
from aicf.passes.analysis.accesses import accesses_by_root
from aicf.passes.analysis.happens_before import HappensBefore
from aicf.passes.analysis.liveness import (
    Interference,
    Lifetime,
    interfering,
    lower_bound,
    slot_lifetimes,
)
from aicf.passes.emit.plan_memory import place


@dataclass
class Case:
    """A program of instructions that touch nothing, its order, and made-up lifetimes."""

    program: ProgramOp
    order: HappensBefore
    edges: list[list[int]]
    lifetimes: list[Lifetime]

    def ends_before(self, first: int, second: int) -> bool:
        """Reachability, the slow way."""
        return any(source == first or self.ends_before(first, source) for source in self.edges[second])

    def alive_together(self, one: Lifetime, other: Lifetime) -> bool:
        def precedes(a: Lifetime, b: Lifetime) -> bool:
            return all(self.ends_before(x, y) for x in a.touches for y in b.touches)

        return not precedes(one, other) and not precedes(other, one)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 7))
    is_chain = draw(st.booleans())
    edges = [
        [i - 1] if is_chain and i else sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else []
        for i in range(count)
    ]
    program = ProgramOp("p", "inplace")
    source = BindOp("input", "x", BufferType([1], f32, "bound"))
    target = BindOp("output", "y", BufferType([1], f32, "bound"))
    program.body.block.add_ops([source, target])
    for i, sources in enumerate(edges):
        after = [EdgeAttr(f"i{source}") for source in sources]
        program.body.block.add_op(
            ResolvedOp("relu", f"i{i}", ["x"], [source.buffer], [target.buffer], stream=0, after=after)
        )
    touches = st.sets(st.integers(0, count - 1), min_size=1, max_size=3)
    sizes, aligns = st.sampled_from([64, 128, 192, 640]), st.sampled_from([64, 64, 128, 256])
    lifetimes = [
        Lifetime(
            SlotOp(BufferType([1], f32, "arena")), draw(sizes), tuple(sorted(draw(touches))), draw(aligns)
        )
        for _ in range(draw(st.integers(0, 7)))
    ]
    return Case(program, HappensBefore(program), edges, lifetimes)


def heaviest_set(case: Case) -> int:
    """Of all sets of lifetimes that are pairwise alive together the largest total size."""
    lives = case.lifetimes
    return max(
        sum(life.size for life in chosen)
        for count in range(len(lives) + 1)
        for chosen in combinations(lives, count)
        if all(case.alive_together(a, b) for a, b in combinations(chosen, 2))
    )


@settings(max_examples=200, deadline=None)
@given(cases())
def test_happens_before_is_reachability(case: Case) -> None:
    for first, one in enumerate(case.program.instructions):
        for second, other in enumerate(case.program.instructions):
            assert case.order.before(one, other) == case.ends_before(first, second)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_interference(case: Case) -> None:
    table = interfering(case.lifetimes, Interference(case.order))
    for i, j in combinations(range(len(case.lifetimes)), 2):
        together = case.alive_together(case.lifetimes[i], case.lifetimes[j])
        assert (j in table[i]) == together
        assert (i in table[j]) == together


@settings(max_examples=200, deadline=None)
@given(cases())
def test_lower_bound_is_the_heaviest_set_alive_together(case: Case) -> None:
    assert lower_bound(case.lifetimes, case.order) == heaviest_set(case)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_placement_never_overlaps_what_is_alive_together(case: Case) -> None:
    lives = case.lifetimes
    offsets = place(lives, Interference(case.order))
    pairs = list(zip(offsets, lives, strict=True))
    assert all(offset >= 0 and offset % life.align == 0 for offset, life in pairs)
    for i, j in combinations(range(len(lives)), 2):
        if case.alive_together(lives[i], lives[j]):
            assert offsets[i] + lives[i].size <= offsets[j] or offsets[j] + lives[j].size <= offsets[i]
    arena = max((offset + life.size for offset, life in pairs), default=0)
    gaps = sum(life.align - 64 for life in lives)
    assert lower_bound(lives, case.order) <= arena <= sum(life.size for life in lives) + gaps
    assert offsets == place(lives, Interference(case.order))


def test_lifetimes_of_a_program() -> None:
    program = ProgramOp("p", "inplace")
    x = BindOp("input", "x", BufferType([3], f32, "bound"))
    y = BindOp("output", "y", BufferType([3], f32, "bound"))
    a, b, unused = (SlotOp(BufferType([size], f32, "arena")) for size in (3, 17, 1))
    program.body.block.add_ops([x, y, a, b, unused])
    for name, source, target in (
        ("one", x.buffer, a.buffer),
        ("two", a.buffer, b.buffer),
        ("three", a.buffer, y.buffer),
    ):
        program.body.block.add_op(ResolvedOp("relu", name, ["x"], [source], [target], stream=0))
    lives = slot_lifetimes(accesses_by_root(program), HappensBefore(program))
    assert [(life.slot, life.size, life.touches) for life in lives] == [(a, 64, (0, 1, 2)), (b, 128, (1,))]
