"""Gradients of single ops as programs: the ops, values away from their kinks, a loss and its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.training.gradients import GRADIENTS
from aicf.passes.training.gradients.base import STEPS
from tests.support.elementwise_ops import OPS
from tests.support.op_rows import ROWS
from tests.support.op_rows.row import is_float

Array = NDArray[Any]


def smooth(inputs: Mapping[str, Array], random: np.random.Generator, *, positive: bool) -> dict[str, Array]:
    """Random floats in the place of drawn ones: none near another one, 0 or a whole number, where there are kinks."""
    floats = [name for name, array in inputs.items() if is_float(array)]
    indices = random.permutation(sum(inputs[name].size for name in floats))
    numbers = 0.1037 + 2.5 * indices / max(len(indices), 1)
    numbers = np.where(np.abs(numbers - np.round(numbers)) < 1e-3, numbers + 1.5e-3, numbers)
    if not positive:
        numbers = numbers * random.choice([-1.0, 1.0], len(numbers))
    ends = np.cumsum([inputs[name].size for name in floats])
    parts = dict(zip(floats, np.split(numbers, ends[:-1]), strict=True)) if floats else {}
    return {n: parts[n].reshape(array.shape) if n in parts else array for n, array in inputs.items()}


def with_loss(module: ModuleOp, weights: Array) -> tuple[ModuleOp, list[str]]:
    """The module with the sum of its weighted result as `loss`, and its gradients by all float inputs."""
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    block = function.body.block
    last = block.last_op
    assert isinstance(last, ReturnOp) and function.arg_attrs is not None
    result = last.operands[0]
    last.detach()
    last.erase()
    names = [entry.data["logical.name"].data for entry in function.arg_attrs]  # type: ignore[union-attr]
    factor = block.insert_arg(result.type, len(block.args))
    product = logical.MulOp(result, factor)
    info = tensor_info(result.type)
    block.add_op(product)
    loss: SSAValue = product.result
    if info.rank:
        total = logical.ReduceSumOp(product, range(info.rank))
        block.add_op(total)
        loss = total.result
    by = {name: arg for name, arg in zip(names, block.args, strict=False) if element_of(arg.type).is_float}
    gradients = [logical.GradientOp(loss, arg) for arg in by.values()]
    block.add_ops(gradients)
    block.add_op(ReturnOp(loss, *gradients))
    function.function_type = type(function.function_type).from_lists(
        [arg.type for arg in block.args], [loss.type, *(g.result.type for g in gradients)]
    )
    role = {"logical.role": StringAttr("input")}
    function.arg_attrs = ArrayAttr(
        [*function.arg_attrs, DictionaryAttr({"logical.name": StringAttr("weights"), **role})]
    )
    function.res_attrs = ArrayAttr(
        DictionaryAttr({"logical.name": StringAttr(name)}) for name in ["loss", *(f"d{n}" for n in by)]
    )
    AssignIdsPass().apply(Context(), module)
    return module, list(by)


def _passes_back(op: object) -> bool:
    return GRADIENTS.get(op) is not STEPS  # type: ignore[call-overload]


SMOOTH_ROWS = [row for row in ROWS if "f64" in row.dtypes and _passes_back(row.op)]


def _op_of(name: str) -> type[object]:
    module = OPS[name].program((2,), OPS[name].dtypes[0])
    return next(type(op) for op in module.walk() if isinstance(op, logical.LogicalOp) and op.operands)


SMOOTH_OPS = [name for name in OPS if "f64" in OPS[name].dtypes and _passes_back(_op_of(name))]
