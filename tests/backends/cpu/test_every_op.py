"""Every op compiled for this machine against float64 NumPy: random shapes, attributes and edges, each element type.

A family of ops is one program, so that one compile serves them all; a failure names the use and is not shrunk, which
would compile hundreds. `test_elementwise.py` has the elementwise ops.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import aicf
from aicf.backends.cpu.target import ELEMENT_BYTES
from tests.support.op_rows import FAMILIES
from tests.support.op_rows.row import Use, program

FAMILY_TYPES = [
    (family, dtype)
    for family, rows in FAMILIES.items()
    for dtype in ELEMENT_BYTES
    if any(dtype in row.dtypes for row in rows)
]


def has_types_of_the_target(use: Use) -> bool:
    """Whether also the result of a cast has a type that the backend takes."""
    return use.attributes.get("element", use.dtype) in ELEMENT_BYTES


@pytest.mark.parametrize(("family", "dtype"), FAMILY_TYPES)
@settings(max_examples=2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_same_answer(family: str, dtype: str, data: st.DataObject) -> None:
    rows = [row for row in FAMILIES[family] if dtype in row.dtypes]
    uses = [data.draw(row.uses(dtype).filter(has_types_of_the_target)) for row in rows]
    module, inputs = program(uses)
    results = aicf.compile(module, target="cpu", training=True).run(inputs)
    for number, use in enumerate(uses):
        use.check(results[f"y{number}"])
