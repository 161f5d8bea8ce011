"""The PyTorch frontend: graphs that PyTorch traced, as logical programs. It does not import PyTorch.

A graph is a `torch.fx.Graph` of ATen ops, functional, each node with its `meta["val"]`: what `torch.export` and
AOTAutograd give. `lower_graph` writes it for sizes that are numbers.
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
