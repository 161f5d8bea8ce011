"""The NumPy meaning of every logical op: the oracle of rewrites and kernels."""

from aicf.semantics.base import Array, coefficient, composite_element
from aicf.semantics.detection import kept_boxes
from aicf.semantics.evaluate import Mode, as_value, evaluate, evaluate_block, value_dtype
from aicf.semantics.meanings import SEMANTICS

__all__ = [
    "SEMANTICS",
    "Array",
    "Mode",
    "as_value",
    "coefficient",
    "composite_element",
    "evaluate",
    "evaluate_block",
    "kept_boxes",
    "value_dtype",
]
