"""A step that adds attention."""

import numpy as np

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import SIZES, Generator


def _attention(g: Generator) -> None:
    q = g.float_value(min_rank=3)
    *batch, heads, queries, depth = tensor_info(q.type).shape
    groups = int(g.choice([count for count in range(1, heads + 1) if heads % count == 0]))
    keys = int(g.choice(SIZES))
    k = g.argument((*batch, groups, keys, depth), "param")
    v = g.argument((*batch, groups, keys, int(g.choice(SIZES))), "param")
    mask = g.argument((queries, keys), "param") if g.chance(0.3) else None
    causal = g.chance(0.4)
    past = int(np.maximum(keys - queries, 0)) if causal and g.chance(0.5) else 0
    g.add(logical.AttentionOp(q, k, v, mask, causal=causal, past=past))


STEPS = (_attention,)
