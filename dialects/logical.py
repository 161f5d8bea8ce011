"""The logical dialect: what a model computes, and nothing about how.

Values are builtin tensors, containers are ``builtin.module`` and ``func.func``. The ops live in
``logical_ops/`` by family: whatever op a family's ``__all__`` names is in the dialect. This file also holds the
names of the attributes by which functions state their interface:

    func.func @f(%x : tensor<?x64xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"})
        -> (tensor<...> {logical.name = "y"}, tensor<...> {logical.updates = "w"})
"""

from __future__ import annotations

from types import ModuleType
from typing import Literal

from xdsl.ir import Dialect, Operation

from aicf.dialects.dims import DimsAttr
from aicf.dialects.logical_ops import (
    activations,
    arithmetic,
    attention,
    casts,
    clipping,
    comparison,
    constant,
    contraction,
    convolution,
    data_movement,
    detection,
    dispatch,
    elementwise,
    functions,
    indexing,
    logic,
    losses,
    normalization,
    optimizers,
    pooling,
    random,
    recurrent,
    reduction,
    scattering,
    training,
)
from aicf.dialects.logical_ops.activations import *
from aicf.dialects.logical_ops.arithmetic import *
from aicf.dialects.logical_ops.attention import *
from aicf.dialects.logical_ops.base import ID_ATTR, SRC_ATTR, LogicalOp, TypeText
from aicf.dialects.logical_ops.casts import *
from aicf.dialects.logical_ops.clipping import *
from aicf.dialects.logical_ops.comparison import *
from aicf.dialects.logical_ops.constant import *
from aicf.dialects.logical_ops.contraction import *
from aicf.dialects.logical_ops.convolution import *
from aicf.dialects.logical_ops.data_movement import *
from aicf.dialects.logical_ops.detection import *
from aicf.dialects.logical_ops.dispatch import *
from aicf.dialects.logical_ops.elementwise import *
from aicf.dialects.logical_ops.functions import *
from aicf.dialects.logical_ops.indexing import *
from aicf.dialects.logical_ops.logic import *
from aicf.dialects.logical_ops.losses import *
from aicf.dialects.logical_ops.normalization import *
from aicf.dialects.logical_ops.optimizers import *
from aicf.dialects.logical_ops.pooling import *
from aicf.dialects.logical_ops.properties import int_values, ints
from aicf.dialects.logical_ops.random import *
from aicf.dialects.logical_ops.recurrent import *
from aicf.dialects.logical_ops.reduction import *
from aicf.dialects.logical_ops.scattering import *
from aicf.dialects.logical_ops.training import *
from aicf.dialects.traits import (
    Composite,
    Contraction,
    Elementwise,
    IndexedRead,
    Internal,
    Normalization,
    Reduction,
    Scan,
    ViewLike,
)

__all__ = [
    "COUNTS_ATTR",
    "HOST_ATTR",
    "ID_ATTR",
    "NAME_ATTR",
    "ROLES",
    "ROLE_ATTR",
    "SRC_ATTR",
    "START_ATTR",
    "UPDATES_ATTR",
    "Composite",
    "Contraction",
    "DimsAttr",
    "Elementwise",
    "IndexedRead",
    "Internal",
    "Logical",
    "LogicalOp",
    "Normalization",
    "Reduction",
    "Role",
    "Scan",
    "TypeText",
    "ViewLike",
    "int_values",
    "ints",
]
__all__ += activations.__all__
__all__ += arithmetic.__all__
__all__ += attention.__all__
__all__ += casts.__all__
__all__ += clipping.__all__
__all__ += comparison.__all__
__all__ += constant.__all__
__all__ += contraction.__all__
__all__ += convolution.__all__
__all__ += data_movement.__all__
__all__ += detection.__all__
__all__ += dispatch.__all__
__all__ += elementwise.__all__
__all__ += functions.__all__
__all__ += indexing.__all__
__all__ += logic.__all__
__all__ += losses.__all__
__all__ += normalization.__all__
__all__ += optimizers.__all__
__all__ += pooling.__all__
__all__ += random.__all__
__all__ += recurrent.__all__
__all__ += reduction.__all__
__all__ += scattering.__all__
__all__ += training.__all__

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

FAMILIES: tuple[ModuleType, ...] = (
    activations,
    arithmetic,
    attention,
    casts,
    clipping,
    comparison,
    constant,
    contraction,
    convolution,
    data_movement,
    detection,
    dispatch,
    elementwise,
    functions,
    indexing,
    logic,
    losses,
    normalization,
    optimizers,
    pooling,
    random,
    recurrent,
    reduction,
    scattering,
    training,
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
