"""A typed Python builder of logical programs.

    g = Graph("mlp")
    x = g.input("x", ("N", 64))
    w, b = g.param("fc1.weight", (128, 64)), g.param("fc1.bias", (128,))
    g.output(g.relu(g.linear(x, w, b)), "y")
    module = g.module()

Operands of elementwise ops are broadcast by NumPy's rules, as explicit ops; Python numbers become constants
of the other operand's type. Each op carries the location in the Python source that asked for it. Nothing is
computed and no weight is held.

Most methods are derived from the constructors of the ops (`constructors.py`, `derived.py`). Those that do more than
make one op are in the other files.
"""

from aicf.frontends.builder.core import Operand, Shape, Value
from aicf.frontends.builder.graph import Graph

__all__ = ["Graph", "Operand", "Shape", "Value"]
