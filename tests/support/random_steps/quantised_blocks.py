"""Steps that read block-quantised weights, which are parameters or inputs of their own."""

from aicf.dialects import logical
from aicf.dialects.block_schemes import BLOCK_SCHEMES, Scheme
from tests.support.random_steps.generator import Generator


def _scheme(g: Generator) -> Scheme:
    return BLOCK_SCHEMES[g.choice([name for name, scheme in BLOCK_SCHEMES.items() if scheme.length == 32])]


def _packed(g: Generator) -> None:
    """Widened, or multiplied."""
    scheme = _scheme(g)
    packed = g.argument((int(g.random.integers(1, 4)), scheme.nbytes), "param", "u8")
    if g.chance(0.5):
        g.add(logical.DequantizeBlocksOp(packed, scheme.name))
    else:
        x = g.argument((int(g.random.integers(1, 4)), scheme.length), "input", "f32")
        g.add(logical.MatmulBlocksOp(x, packed, scheme.name))


STEPS = (_packed,)
