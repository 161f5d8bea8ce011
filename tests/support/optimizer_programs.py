"""Steps of optimizers as programs: the cases that are compared with the definition and with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from aicf.dialects import logical
from aicf.dialects.types import tensor
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.semantics import evaluate_block
from aicf.semantics.evaluate import Mode

Array = NDArray[Any]
SHAPE = (3, 5)


@dataclass(frozen=True)
class Case:
    """An optimizer with options, by our names."""

    op: Callable[..., logical.OptimizerOp]
    options: Mapping[str, Any]
    states: int


CASES = {
    "sgd": Case(logical.SgdOp, {}, 0),
    "sgd, decay": Case(logical.SgdOp, {"weight_decay": 0.1}, 0),
    "momentum": Case(logical.SgdOp, {"momentum": 0.9}, 1),
    "dampened": Case(logical.SgdOp, {"momentum": 0.9, "dampening": 0.25, "weight_decay": 0.01}, 1),
    "nesterov": Case(logical.SgdOp, {"momentum": 0.8, "nesterov": True, "weight_decay": 0.01}, 1),
    "adam": Case(logical.AdamOp, {}, 2),
    "adam, options": Case(
        logical.AdamOp, {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3, "weight_decay": 0.1}, 2
    ),
    "amsgrad": Case(logical.AdamOp, {"amsgrad": True}, 3),
    "adamw": Case(logical.AdamwOp, {"weight_decay": 0.1}, 2),
    "adamw, amsgrad": Case(logical.AdamwOp, {"weight_decay": 0.05, "amsgrad": True, "beta1": 0.0}, 3),
}


def program(case: Case, dtype: str) -> ModuleOp:
    """One step: parameter, gradient, rate, step and states to parameter and states."""
    many, one = tensor(SHAPE, dtype), tensor([], dtype)
    types = [many, many, one, tensor([], "i64"), *[many] * case.states]
    block = Block(arg_types=types)
    parameter, gradient, rate, step, *states = block.args
    op = case.op(parameter, gradient, rate, step, states, **case.options)
    block.add_op(op)
    block.add_op(ReturnOp(*op.results))
    module = ModuleOp([FuncOp("step", (types, [many] * (1 + case.states)), Region(block))])
    AssignIdsPass().apply(Context(), module)
    return module


def run(module: ModuleOp, arguments: list[Array], mode: Mode = "exact") -> list[Array]:
    """The parameter and the states after a step."""
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    return evaluate_block(function.body.block, arguments, mode)


def trajectory(
    module: ModuleOp, case: Case, gradients: list[Array], start: Array, rate: float, mode: Mode
) -> list[Array]:
    """The parameter and the states after a step for each gradient."""
    values = [start, *[np.zeros(SHAPE)] * case.states]
    for number, gradient in enumerate(gradients, 1):
        values = run(module, [values[0], gradient, np.array(rate), np.array(number), *values[1:]], mode)
    return values
