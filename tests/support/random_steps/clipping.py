"""Steps that clip values by the norm of all of them."""

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator


def _clipped(g: Generator) -> None:
    """Values of f32 or f64, one of them perhaps twice, of which the first is brought down to a norm."""
    parts = [g.float_value() for _ in range(int(g.random.integers(1, 4)))]
    element = g.float_type if g.float_type in ("f32", "f64") else "f32"
    wide = [x if g.float_type == element else g.require(logical.CastOp(x, element)) for x in parts]
    factor = g.require(logical.ClipFactorOp(g.require(logical.GlobalNormOp(wide)), g.choice((0.5, 8.0))))
    shape = tensor_info(wide[0].type).shape
    spread = g.require(logical.BroadcastOp(factor, (), shape)) if shape else factor
    g.add(logical.MulOp(wide[0], spread))


STEPS = (_clipped,)
