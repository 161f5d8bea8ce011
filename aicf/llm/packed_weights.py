"""Weights that stay as their source stores them: parameters of blocks, widened by what reads them."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Block, BlockArgument, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.registry import get_kernels, resolve_target
from aicf.dialects.block_schemes import BLOCK_SCHEMES, Scheme
from aicf.dialects.logical import CastOp, DequantizeBlocksOp
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.support.interface import arguments_of, functions

_PRODUCT = "matmul_blocks"
"""The kind of instruction that reads packed weights."""


def reads_blocks(target: str, element: str = "f32") -> bool:
    """Whether a target has kernels for products of rows of an element type with packed weights.

    One matrix stands for all of a model. Stacks of experts stay packed along with it where no kernel reads them: the
    matrices that a token chooses are gathered as they are, and widened.
    """
    backend = target.partition(":")[0]
    named = resolve_target(target)
    work = _work(element)
    kernels = get_kernels(backend).values()
    return any(_PRODUCT in each.kinds and each.legal(work, named) is None for each in kernels)


def _work(element: str) -> Workload:
    """A row times a matrix of blocks that every kernel of such products reads."""
    scheme = BLOCK_SCHEMES["Q8_0"]
    columns, nbytes, rows = 8 * scheme.length, 8 * scheme.nbytes, 64
    x = OperandInfo("temp", (1, columns), element, (columns, 1))
    weight = OperandInfo("param", (rows, nbytes), "u8", (nbytes, 1))
    result = OperandInfo("temp", (1, rows), element, (rows, 1))
    return Workload("w", _PRODUCT, {"scheme": StringAttr(scheme.name)}, (x, weight), (result,), Block(), None)


def keep_packed(module: ModuleOp, schemes: Mapping[str, Scheme]) -> None:
    """Makes parameters of [..., columns] ones of u8[..., bytes of a row], which are widened where they are read, to
    their type.

    Args:
        module: A program of the builder; it is changed.
        schemes: By the names of parameters. Names of none are passed over.
    """
    for function in functions(module):
        for name, argument in arguments_of(function).items():
            if name in schemes:
                _pack(argument, schemes[name])
        function.update_function_type()


def _pack(argument: BlockArgument, scheme: Scheme) -> None:
    info = tensor_info(argument.type)
    *rows, columns = info.shape
    packed = tensor((*rows, columns // scheme.length * scheme.nbytes), "u8")
    block, value = argument.block, Rewriter.replace_value_with_new_type(argument, packed)
    readers = list(value.uses)
    made: list[Operation] = [widened := DequantizeBlocksOp(value, scheme.name)]
    if info.element.name != "f32":
        made.append(CastOp(widened.result, info.element))
    Rewriter.insert_op(made, InsertPoint.at_start(block))
    made[-1].results[0].name_hint = value.name_hint
    for use in readers:
        use.operation.operands[use.index] = made[-1].results[0]
