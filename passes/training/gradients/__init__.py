"""What each op passes back to its operands: a table, one entry an op, one file a family.

A file registers by being here: it is imported with this package, and its ``GRADIENTS`` enter the table.
"""

import pkgutil
from importlib import import_module
from typing import cast

from xdsl.ir import Operation

from aicf.passes.training.gradients.base import Adjoint, ByFormula, Gradient, Gradients, Tape

GRADIENTS: Gradients = {
    op_class: gradient
    for module in pkgutil.iter_modules(__path__)
    if hasattr(family := import_module(f"{__name__}.{module.name}"), "GRADIENTS")
    for op_class, gradient in cast(Gradients, family.GRADIENTS).items()
}


def gradient_of(op: Operation) -> Gradient | None:
    """What an op passes back; None if nothing says so."""
    row = GRADIENTS.get(type(op))
    return row(op) if callable(row) else row


__all__ = ["GRADIENTS", "Adjoint", "ByFormula", "Gradient", "Tape", "gradient_of"]
