"""A step that adds a recurrent layer."""

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import SIZES, Generator


def _lstm(g: Generator) -> None:
    """All states of a new value with a recent one in its place, if that has the shape."""
    if g.float_type not in ("f32", "f64"):
        return
    steps, batch, hidden = (min(int(g.choice(SIZES)), 4) for _ in range(3))
    shape = (steps, batch, 4 * hidden)
    fitting = g.values(lambda info: info.sizes == shape and info.element.name == g.float_type)
    x = fitting[-1] if fitting else g.argument(shape, "input")
    weight, first = g.argument((4 * hidden, hidden), "param"), g.argument((2, batch, hidden), "param")
    states = g.add(logical.LstmOp(x, weight, first, reverse=g.chance(0.5)))
    if states is not None and g.chance(0.5):
        g.add(logical.SliceOp(states, (0, 0, 0, 0), (1, *tensor_info(states.type).shape[1:])))


STEPS = (_lstm,)
