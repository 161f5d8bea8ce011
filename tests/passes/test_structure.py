"""Bodies that are alike: what tells two apart, and that a copy of the work of one is that derived from the other."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
from xdsl.ir import Block
from xdsl.printer import Printer

from aicf.passes.bodies.structure import structure_of_body, structure_of_code
from aicf.passes.bodies.workload import GroupWorkload, workload_of_body
from aicf.passes.fusion.workload_templates import WorkTemplate
from tests.passes.bodies import body

ROWS = 4
ORIGINS = [("input", False), ("param", False), ("param", False)]


def dense(name: str, *, rows: int = ROWS, activation: str = "relu", number: str = "2.0") -> Block:
    """A product with a bias read through a broadcast, a factor and an activation; all is called after `name`."""
    t = f"tensor<{rows}x8xf32>"
    said = f'{{aicf.id = "{name}.IT", aicf.src = ["{name}"]}}'
    return body(
        f"%{name}.x : tensor<{rows}x16xf32>, %{name}.w : tensor<16x8xf32>, %{name}.b : tensor<8xf32>",
        f"%{name}.c = logical.constant dense<{number}> : {t}",
        f"%{name}.m = logical.matmul %{name}.x, %{name}.w {said.replace('IT', 'm')} : "
        f"(tensor<{rows}x16xf32>, tensor<16x8xf32>) -> {t}",
        f"%0 = logical.broadcast %{name}.b {{dimensions = [1]}} : tensor<8xf32> -> {t}",
        f"%{name}.s = logical.add %{name}.m, %0 {said.replace('IT', 's')} : {t}",
        f"%{name}.f = logical.mul %{name}.s, %{name}.c {said.replace('IT', 'f')} : {t}",
        f"%1 = logical.{activation} %{name}.f {said.replace('IT', 'a')} : {t}",
        f"emit.yield %1 : {t}",
    )


def text(work: GroupWorkload) -> str:
    """The body and the program of a work with locations and names."""
    out = StringIO()
    printer = Printer(out, print_debuginfo=True)
    printer.print_block(work.work.body)
    assert work.work.code is not None
    printer.print_op(work.work.code)
    return out.getvalue()


def test_a_copied_work_is_the_derived_one_with_its_own_names() -> None:
    own = dense("two")
    copied = WorkTemplate.of(dense("one"), ORIGINS).named("g", own)
    derived = workload_of_body("g", own, ORIGINS)
    assert text(copied) == text(derived)
    assert "two.m" in text(copied) and "one" not in text(copied)
    assert copied.operands == derived.operands and copied.results == derived.results
    assert (copied.work.id, copied.work.kind, copied.work.attrs) == (
        "g",
        derived.work.kind,
        derived.work.attrs,
    )


def test_structures_leave_out_names() -> None:
    assert structure_of_body(dense("one")) == structure_of_body(dense("two"))
    codes = [workload_of_body(name, dense(name), ORIGINS).work.code for name in ("one", "two")]
    assert structure_of_code(codes[0]) == structure_of_code(codes[1]) != ()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: dense("one", rows=5), id="sizes"),
        pytest.param(lambda: dense("one", activation="tanh"), id="op"),
        pytest.param(lambda: dense("one", number="3.0"), id="constant"),
    ],
)
def test_structures_differ_by_what_is_computed(other: Callable[[], Block]) -> None:
    assert structure_of_body(other()) != structure_of_body(dense("one"))
