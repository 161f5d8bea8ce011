"""Rows of the clipping of gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from aicf.dialects import logical
from aicf.dialects.types import element_named
from tests.support.op_rows.row import Array, Draw, OperandsAndAttrs, Row, random_of, shape, values

WIDE = ("f64", "f32")


def _parts(draw: Draw, dtype: str) -> OperandsAndAttrs:
    count = draw(st.integers(1, 4))
    return [values(draw, dtype, shape(draw, 0)) for _ in range(count)], {}


def _norm(*parts: Array) -> Any:
    return np.linalg.norm(np.concatenate([part.reshape(-1) for part in parts]))


def _given_norm(draw: Draw, dtype: str) -> OperandsAndAttrs:
    edges = st.sampled_from([0.0, math.inf, math.nan, 1.0])
    norm = draw(st.one_of(edges, st.just(4 * random_of(draw).random())))
    bound = draw(st.sampled_from([0.0, 0.25, 1.0, 2.0]))
    return [np.array(norm).astype(element_named(dtype).dtype)], {"max_norm": bound}


def _factor(norm: Array, max_norm: float) -> Any:
    quotient = max_norm / (norm + 1e-6)
    return 1.0 if quotient > 1 else quotient


ROWS = (
    Row(lambda *parts: logical.GlobalNormOp(parts), _parts, _norm, WIDE, name="global_norm"),
    Row(logical.ClipFactorOp, _given_norm, _factor, WIDE),
)
