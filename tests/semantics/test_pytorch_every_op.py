"""The ops that are not elementwise, on ``reference`` and compiled for this machine, against PyTorch."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import aicf
from tests.support.op_rows.row import Row, program
from tests.support.random_graphs import run_program
from tests.support.torch_ops import FAMILIES, ROWS, TORCH, TYPES, assert_like_theirs, defined, keeps_digits

pytestmark = pytest.mark.peers


def test_every_row_has_a_peer() -> None:
    assert TORCH.keys() == {row.name for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@settings(max_examples=20)
@given(data=st.data())
def test_meaning(row: Row, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([dtype for dtype in TYPES if dtype in row.dtypes]))
    use = defined(data.draw(row.uses(dtype).filter(keeps_digits)))
    module, inputs = program([use])
    assert_like_theirs(use, run_program(module, inputs, "typed")["y0"])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=1, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_compiled(family: str, dtype: str, data: st.DataObject) -> None:
    rows = [row for row in FAMILIES[family] if dtype in row.dtypes]
    uses = [defined(data.draw(row.uses(dtype).filter(keeps_digits))) for row in rows]
    if uses:
        module, inputs = program(uses)
        results = aicf.compile(module, target="cpu").run(inputs)
        for number, use in enumerate(uses):
            assert_like_theirs(use, results[f"y{number}"])
