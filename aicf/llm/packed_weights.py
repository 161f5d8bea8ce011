"""Weights that stay as their source stores them: parameters of blocks, widened by what reads them."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument
from xdsl.rewriter import InsertPoint, Rewriter

from aicf.backends.registry import get_kernels
from aicf.dialects.block_schemes import Scheme
from aicf.dialects.logical import DequantizeBlocksOp
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.support.interface import arguments_of, functions

_PRODUCT = "matmul_blocks"
"""The kind of instruction that reads packed weights."""


def reads_blocks(target: str) -> bool:
    """Whether a target has kernels for products with packed weights."""
    backend = target.partition(":")[0]
    return any(_PRODUCT in kernel.kinds for kernel in get_kernels(backend).values())


def keep_packed(module: ModuleOp, schemes: Mapping[str, Scheme]) -> None:
    """Makes parameters of f32[..., columns] ones of u8[..., bytes of a row], which are widened where they are read.

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
    widened = DequantizeBlocksOp(value, scheme.name)
    widened.result.name_hint = value.name_hint
    Rewriter.insert_op(widened, InsertPoint.at_start(block))
    for use in readers:
        use.operation.operands[use.index] = widened.result
