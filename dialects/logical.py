"""The logical dialect: what a model computes, and nothing about how.

Values are builtin tensors, containers are ``builtin.module`` and ``func.func``. The ops live in
``logical_ops/`` by family: whatever op a family's ``__all__`` names is in the dialect. This file also holds the
names of the attributes by which functions state their interface:

    func.func @f(%x : tensor<?x64xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"})
        -> (tensor<...> {logical.name = "y"}, tensor<...> {logical.updates = "w"})
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Literal

from xdsl.ir import Dialect, Operation

from aicf.dialects import logical_ops
from aicf.dialects.dims import DimsAttr as DimsAttr
from aicf.dialects.logical_ops.activations import *
from aicf.dialects.logical_ops.arithmetic import *
from aicf.dialects.logical_ops.attention import *
from aicf.dialects.logical_ops.base import ID_ATTR as ID_ATTR
from aicf.dialects.logical_ops.base import SRC_ATTR as SRC_ATTR
from aicf.dialects.logical_ops.base import LogicalOp as LogicalOp
from aicf.dialects.logical_ops.base import TypeText as TypeText
from aicf.dialects.logical_ops.casts import *
from aicf.dialects.logical_ops.clipping import *
from aicf.dialects.logical_ops.comparison import *
from aicf.dialects.logical_ops.constant import *
from aicf.dialects.logical_ops.contraction import *
from aicf.dialects.logical_ops.conv_weight_grad import *
from aicf.dialects.logical_ops.convolution import *
from aicf.dialects.logical_ops.custom import *
from aicf.dialects.logical_ops.data_movement import *
from aicf.dialects.logical_ops.detection import *
from aicf.dialects.logical_ops.dispatch import *
from aicf.dialects.logical_ops.elementwise import *
from aicf.dialects.logical_ops.functions import *
from aicf.dialects.logical_ops.indexing import *
from aicf.dialects.logical_ops.logic import *
from aicf.dialects.logical_ops.losses import *
from aicf.dialects.logical_ops.max_pool_grad import *
from aicf.dialects.logical_ops.normalization import *
from aicf.dialects.logical_ops.optimizers import *
from aicf.dialects.logical_ops.pooling import *
from aicf.dialects.logical_ops.properties import int_value as int_value
from aicf.dialects.logical_ops.properties import int_values as int_values
from aicf.dialects.logical_ops.properties import ints as ints
from aicf.dialects.logical_ops.quantised_blocks import *
from aicf.dialects.logical_ops.random import *
from aicf.dialects.logical_ops.recurrent import *
from aicf.dialects.logical_ops.reduction import *
from aicf.dialects.logical_ops.scattering import *
from aicf.dialects.logical_ops.training import *
from aicf.dialects.traits import Composite as Composite
from aicf.dialects.traits import Contraction as Contraction
from aicf.dialects.traits import Elementwise as Elementwise
from aicf.dialects.traits import IndexedRead as IndexedRead
from aicf.dialects.traits import Internal as Internal
from aicf.dialects.traits import Normalization as Normalization
from aicf.dialects.traits import Reduction as Reduction
from aicf.dialects.traits import Scan as Scan
from aicf.dialects.traits import ViewLike as ViewLike

NAME_ATTR = "logical.name"
ROLE_ATTR = "logical.role"
UPDATES_ATTR = "logical.updates"
START_ATTR = "aicf.start"
"""Of a meta argument: the tensor it starts with unless the weights have another."""
COUNTS_ATTR = "aicf.counts"
"""Of a result of one i64: of which results it says how many slices are there, and along which dimension of each."""
HOST_ATTR = "aicf.host"
"""Of a meta argument: how the executable computes it, see `host_formulas`."""

Role = Literal["input", "param", "state", "meta", "derived"]
ROLES: tuple[Role, ...] = ("input", "param", "state", "meta")
"""Of arguments of models. A `derived` argument is what `@prepare` makes of parameters; only passes add some."""

FAMILIES: tuple[ModuleType, ...] = tuple(
    family
    for name in sorted(module.name for module in pkgutil.iter_modules(logical_ops.__path__))
    if hasattr(family := import_module(f"{logical_ops.__name__}.{name}"), "__all__")
)
"""The files of ``logical_ops/`` that hold ops."""


def ops_of(family: ModuleType) -> list[type[Operation]]:
    """The ops that a family exports, in the order of its ``__all__``."""
    exported = [getattr(family, name) for name in family.__all__]
    return [
        item
        for item in exported
        if isinstance(item, type) and issubclass(item, Operation) and "name" in vars(item)
    ]


Logical = Dialect("logical", [op for family in FAMILIES for op in ops_of(family)], [DimsAttr])
