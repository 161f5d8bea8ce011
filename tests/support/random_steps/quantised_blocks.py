"""Steps that read block-quantised weights, which are parameters or inputs of their own."""

from aicf.dialects import logical
from aicf.dialects.block_schemes import BLOCK_SCHEMES, Scheme
from tests.support.random_steps.generator import Generator

_SCHEMES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "U4")
"""Some with short blocks; `tests/support/op_rows` draws from all."""


def _scheme(g: Generator) -> Scheme:
    return BLOCK_SCHEMES[g.choice(_SCHEMES)]


def _packed(g: Generator) -> None:
    """Widened, or multiplied."""
    scheme = _scheme(g)
    packed = g.argument((int(g.random.integers(1, 4)), scheme.nbytes), "param", "u8")
    if g.chance(0.5):
        g.add(logical.DequantizeBlocksOp(packed, scheme.name))
    else:
        x = g.argument((int(g.random.integers(1, 4)), scheme.length), "input", "f32")
        for product in (logical.MatmulBlocksOp, logical.RoundedMatmulBlocksOp):
            g.add(product(x, packed, scheme.name))


STEPS = (_packed,)
