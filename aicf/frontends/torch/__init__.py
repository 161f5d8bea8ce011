"""The PyTorch frontend: lowers graphs that PyTorch traced to logical programs. Importing it does not import PyTorch.

A graph is a `torch.fx.Graph` of functional ATen ops, each node with its `meta["val"]`, from `torch.export` or
AOTAutograd. `lower_graph` lowers it for concrete sizes.
"""

from aicf.frontends.torch.lowering import lower_graph
from aicf.frontends.torch.program import (
    Alias,
    Computed,
    Lowered,
    NoTensor,
    Output,
    Passed,
    Port,
    Roles,
    View,
    Void,
)

__all__ = [
    "Alias",
    "Computed",
    "Lowered",
    "NoTensor",
    "Output",
    "Passed",
    "Port",
    "Roles",
    "View",
    "Void",
    "lower_graph",
]
