"""A step that adds an op of object detectors."""

from aicf.dialects import logical
from tests.support.random_steps.generator import SIZES, Generator


def _non_max_suppression(g: Generator) -> None:
    """Of inputs: which boxes are kept may hang on the last bit of what is computed."""
    if g.float_type not in ("f32", "f64"):
        return
    samples, classes, count = (min(int(g.choice(SIZES)), 4) for _ in range(3))
    boxes, scores = g.argument((samples, count, 4), "input"), g.argument((samples, classes, count), "input")
    floor = g.argument((), "input") if g.chance(0.5) else None
    limit = int(g.choice(SIZES))
    g.add(
        logical.NonMaxSuppressionOp(
            boxes, scores, g.argument((), "input"), floor, limit=limit, centred=g.chance(0.5)
        )
    )


STEPS = (_non_max_suppression,)
