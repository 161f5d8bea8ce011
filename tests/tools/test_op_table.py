"""The table of ops says what the verifiers and the compiler say."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.registry import backend_names
from aicf.dialects import logical
from aicf.errors import UnsupportedOp
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.semantics import SEMANTICS
from aicf.tools.op_samples import function_of, samples
from aicf.tools.op_table import TARGETS, is_run, rows_of

NUMBERS = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"}
FLOATS = {"f64", "f32", "f16", "bf16"}


@pytest.mark.new_op
def test_every_op_that_gives_a_value_has_a_row() -> None:
    names = [row[0] for family in logical.FAMILIES for row in rows_of(family)]
    assert sorted(names) == sorted(f"`{op.name}`" for op in SEMANTICS)
    assert set(TARGETS) <= set(backend_names())


@pytest.mark.parametrize(
    ("op", "types"),
    [
        (logical.AddOp, NUMBERS),
        (logical.ExpOp, FLOATS),
        (logical.ClampOp, NUMBERS),
        (logical.CompareOp, NUMBERS | {"i1"}),
        (logical.GatherOp, NUMBERS | {"i1", "f8E4M3FN", "f8E5M2"}),
        (logical.ArgmaxOp, NUMBERS | {"i1"}),
        (logical.IsNanOp, FLOATS),
        (logical.OneHotOp, NUMBERS | {"i1"}),
        (logical.LastUpdateOp, {"i64", "i32"}),
        (logical.PhiloxOp, FLOATS | {"i32"}),
        (logical.DropoutOp, FLOATS),
    ],
)
def test_types_are_those_of_the_data(op: type[logical.LogicalOp], types: set[str]) -> None:
    """Not of indices, seeds, conditions or results; numbers of attributes are written as the type takes them."""
    assert set(samples()[op]) == types


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("op", [logical.AddOp, logical.PadOp, logical.ArgmaxOp])
def test_what_a_backend_runs_compiles(backend: str, op: type[logical.LogicalOp]) -> None:
    """The passes form a program exactly of what has a kernel, by the table."""
    for sample in samples()[op].values():
        function = function_of(sample)
        module = ModuleOp([function])
        try:
            AicfInferencePass(TARGETS[backend]).apply(make_context(), module)
        except UnsupportedOp:
            assert not is_run(sample, backend)
        else:
            assert is_run(sample, backend)
