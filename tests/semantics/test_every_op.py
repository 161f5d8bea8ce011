"""The meaning of every op against float64 NumPy written apart from it: random shapes, attributes, types and edges."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.frontends.text import verify_module
from tests.support.elementwise_ops import OPS
from tests.support.op_coverage import OF_TRAINING, assert_holds_every_op
from tests.support.op_rows import ROWS
from tests.support.op_rows.row import ALL, Row, Use, program
from tests.support.random_graphs import run_program

IDS = [row.name for row in ROWS]
OF_ONE_TYPE = (logical.LastUpdateOp, logical.DequantizeBlocksOp, logical.RoundedMatmulBlocksOp)
"""Ops whose operand has another type than the one that a row draws."""


@pytest.mark.parametrize("row", ROWS, ids=IDS)
@settings(max_examples=40)
@given(data=st.data())
def test_same_answer(row: Row, data: st.DataObject) -> None:
    use = data.draw(row.uses(data.draw(st.sampled_from(row.dtypes))))
    module, inputs = program([use])
    verify_module(module)
    use.check(run_program(module, inputs)["y0"], exact=True)
    use.check(run_program(module, inputs, "typed")["y0"])


@pytest.mark.new_op
@settings(max_examples=1, phases=[Phase.generate])
@given(uses=st.tuples(*(row.uses(row.dtypes[0]) for row in ROWS)))
def test_no_op_lacks_a_row(uses: Sequence[Use]) -> None:
    modules = [op.program((2,), op.dtypes[0]) for op in OPS.values()] + [program(uses)[0]]
    held = {type(op) for module in modules for op in module.walk()}
    where = "tests/support/op_rows/, or tests/support/elementwise_ops.py if it is elementwise"
    assert_holds_every_op(held, where, besides=OF_TRAINING)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
@settings(max_examples=1)
@given(data=st.data())
def test_rows_name_all_types_that_the_op_takes(row: Row, data: st.DataObject) -> None:
    for dtype in set(ALL) - set(row.dtypes) - ({*ALL} if row.op in OF_ONE_TYPE else set()):
        with pytest.raises(VerifyException):
            program([data.draw(row.uses(dtype))])
