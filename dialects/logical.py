"""The logical dialect: what a model computes, and nothing about how.

Values are builtin tensors, containers are ``builtin.module`` and ``func.func``. The ops live in
``logical_ops/`` by family; this file joins them into the dialect, and holds the names of the attributes by
which functions state their interface:

    func.func @f(%x : tensor<?x64xf32, #logical.dims<["N", ""]>> {logical.name = "x", logical.role = "input"})
        -> (tensor<...> {logical.name = "y"}, tensor<...> {logical.updates = "w"})
"""

from __future__ import annotations

from typing import Literal

from xdsl.ir import Dialect

from aicf.dialects.dims import DimsAttr
from aicf.dialects.logical_ops.base import (
    ID_ATTR,
    SRC_ATTR,
    Composite,
    Contraction,
    Elementwise,
    LogicalOp,
    Normalization,
    Reduction,
    TypeText,
    ViewLike,
    int_values,
    ints,
)
from aicf.dialects.logical_ops.constant import MAX_CONSTANT_ELEMENTS, ConstantOp
from aicf.dialects.logical_ops.contraction import LinearOp, MatmulOp
from aicf.dialects.logical_ops.data_movement import (
    WHOLE,
    BroadcastOp,
    ConcatOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from aicf.dialects.logical_ops.dispatch import DispatchOp
from aicf.dialects.logical_ops.elementwise import (
    APPROXIMATIONS,
    PREDICATES,
    AddOp,
    Approximation,
    BinaryOp,
    CastOp,
    CompareOp,
    DivOp,
    ErfOp,
    ExpOp,
    GeluOp,
    LogOp,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    Predicate,
    ReluOp,
    RsqrtOp,
    SelectOp,
    SigmoidOp,
    SiluOp,
    SqrtOp,
    SubOp,
    TanhOp,
    UnaryOp,
)
from aicf.dialects.logical_ops.reduction import (
    DEFAULT_EPSILON,
    LayerNormOp,
    ReduceMaxOp,
    ReduceMeanOp,
    ReduceOp,
    ReduceSumOp,
    SoftmaxOp,
    normalized_axes,
)

NAME_ATTR = "logical.name"
ROLE_ATTR = "logical.role"
UPDATES_ATTR = "logical.updates"

Role = Literal["input", "param", "state", "meta"]
ROLES: tuple[Role, ...] = ("input", "param", "state", "meta")

Logical = Dialect(
    "logical",
    [
        AddOp,
        SubOp,
        MulOp,
        DivOp,
        MaxOp,
        MinOp,
        NegOp,
        ExpOp,
        LogOp,
        SqrtOp,
        RsqrtOp,
        TanhOp,
        ErfOp,
        ReluOp,
        SigmoidOp,
        SiluOp,
        GeluOp,
        CompareOp,
        SelectOp,
        CastOp,
        MatmulOp,
        LinearOp,
        ReduceSumOp,
        ReduceMeanOp,
        ReduceMaxOp,
        SoftmaxOp,
        LayerNormOp,
        ReshapeOp,
        TransposeOp,
        BroadcastOp,
        SliceOp,
        ConcatOp,
        ConstantOp,
        DispatchOp,
    ],
    [DimsAttr],
)

__all__ = [
    "APPROXIMATIONS",
    "DEFAULT_EPSILON",
    "ID_ATTR",
    "MAX_CONSTANT_ELEMENTS",
    "NAME_ATTR",
    "PREDICATES",
    "ROLES",
    "ROLE_ATTR",
    "SRC_ATTR",
    "UPDATES_ATTR",
    "WHOLE",
    "AddOp",
    "Approximation",
    "BinaryOp",
    "BroadcastOp",
    "CastOp",
    "CompareOp",
    "Composite",
    "ConcatOp",
    "ConstantOp",
    "Contraction",
    "DimsAttr",
    "DispatchOp",
    "DivOp",
    "Elementwise",
    "ErfOp",
    "ExpOp",
    "GeluOp",
    "LayerNormOp",
    "LinearOp",
    "LogOp",
    "Logical",
    "LogicalOp",
    "MatmulOp",
    "MaxOp",
    "MinOp",
    "MulOp",
    "NegOp",
    "Normalization",
    "Predicate",
    "ReduceMaxOp",
    "ReduceMeanOp",
    "ReduceOp",
    "ReduceSumOp",
    "Reduction",
    "ReluOp",
    "ReshapeOp",
    "Role",
    "RsqrtOp",
    "SelectOp",
    "SigmoidOp",
    "SiluOp",
    "SliceOp",
    "SoftmaxOp",
    "SqrtOp",
    "SubOp",
    "TanhOp",
    "TransposeOp",
    "TypeText",
    "UnaryOp",
    "ViewLike",
    "int_values",
    "ints",
    "normalized_axes",
]
