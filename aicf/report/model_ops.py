"""The ops of the model that a program was compiled from, and which of them read which: out of its logical IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from aicf.dialects.logical import NAME_ATTR
from aicf.dialects.onnx import GraphOp, NodeOp
from aicf.dialects.onnx_types import ValueType
from aicf.dialects.types import is_tensor, tensor_info
from aicf.passes.support.identity import op_id
from aicf.report.contents import ModelOp
from aicf.runtime.tensors import describe


def model_ops(module: ModuleOp, locations: Mapping[str, str]) -> tuple[ModelOp, ...]:
    """The ops of a module that have ids, in text order.

    Args:
        module: Logical IR with ids.
        locations: `file:line:col` by id, as far as that is known.
    """
    return tuple(
        _model_op(op, id_, locations.get(id_)) for op in module.walk() if (id_ := op_id(op)) is not None
    )


def _model_op(op: Operation, id_: str, location: str | None) -> ModelOp:
    kind = op.op_type.data if isinstance(op, NodeOp) else op.name.partition(".")[2]
    type_ = ", ".join(_type_in_words(result.type) for result in op.results)
    operands = list(_operands(op))
    ids = (op_id(owner) for value in operands if isinstance(owner := value.owner, Operation))
    reads = tuple(dict.fromkeys(each for each in ids if each is not None))
    names = (_argument_name(value) for value in operands if isinstance(value, BlockArgument))
    inputs = tuple(dict.fromkeys(each for each in names if each is not None))
    return ModelOp(id_, kind, type_, reads, inputs, location)


def _operands(op: Operation) -> Iterator[SSAValue]:
    """What an op reads: its operands, and those of the ops in its regions, which may be values from around it."""
    for inner in op.walk():
        yield from inner.operands


def _argument_name(argument: BlockArgument) -> str | None:
    """The name of an input or weight; None of an argument of an inner block."""
    function = argument.block.parent_op()
    if not isinstance(function, FuncOp | GraphOp):
        return None
    attrs: ArrayAttr[DictionaryAttr] | None = function.arg_attrs
    name = None if attrs is None else attrs.data[argument.index].data.get(NAME_ATTR)
    return name.data if isinstance(name, StringAttr) else argument.name_hint


def _type_in_words(type_: Attribute) -> str:
    info = type_.info if isinstance(type_, ValueType) else tensor_info(type_) if is_tensor(type_) else None
    return "" if info is None else describe([str(size) for size in info.sizes], info.element.name)
