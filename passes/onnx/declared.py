"""Compares what ONNX nodes give with what the model declares of it. What the nodes give holds."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from aicf.dialects.onnx import CONTRADICTIONS_ATTR, GraphOp, NodeOp
from aicf.dialects.onnx_types import Claim
from aicf.dialects.types import TensorInfo, element_of_dtype, tensor_info
from aicf.errors import InvalidIR
from aicf.passes.onnx.names import node_id
from aicf.passes.onnx.ops import Counted, Header, Items, Known, Value
from aicf.passes.support.identity import position_of
from aicf.passes.support.ledger import record_decision


class Declarations:
    """Records wrong declarations in the ledger, each value once.

    Args:
        module: Has the ledger.
        pass_name: Of the pass that compares.
        is_strict: Whether one is an error.
    """

    def __init__(self, module: ModuleOp, pass_name: str, *, is_strict: bool) -> None:
        self._module = module
        self._pass_name = pass_name
        self._is_strict = is_strict
        self._seen: set[tuple[str, int] | str] = set()

    def take(self, graph: GraphOp) -> None:
        """What the importer found already.

        Raises:
            InvalidIR: there is something, and declarations have to be right.
        """
        found = graph.attributes.get(CONTRADICTIONS_ATTR)
        entries = found.data if isa(found, ArrayAttr[StringAttr]) else ()
        for text in (entry.data for entry in entries):
            if text not in self._seen:
                self._seen.add(text)
                self._contradicted(graph.sym_name.data.partition("@")[0], text, None)

    def check(self, op: NodeOp, header: Header, results: Sequence[Value]) -> None:
        """Compares element types, ranks and sizes of what a node gives.

        Raises:
            InvalidIR: one is wrong, and declarations have to be right.
        """
        for index, (declared, value) in enumerate(zip(op.outs, results, strict=False)):
            claim = declared.type.claim
            if claim is None or value is None or (found := _contradicting(claim, value)) is None:
                continue
            if (header.name, index) in self._seen:
                continue
            self._seen.add((header.name, index))
            name = "" if declared.name_hint is None else f" ('{declared.name_hint}')"
            text = f"{header}: output {index}{name} is {found}, the model declares {claim}"
            self._contradicted(node_id(op), text, position_of(op))

    def _contradicted(self, subject: str, text: str, position: str | None) -> None:
        if self._is_strict:
            raise InvalidIR(
                f"wrong declaration: {text}; correct it, take it out of the model, or compile without strict",
                location=position,
            )
        record_decision(self._module, self._pass_name, [subject], "the inferred type holds", text)


def _contradicting(claim: Claim, value: Value) -> str | None:
    """What a value is, in words, if the claim does not fit it."""
    if isinstance(value, Items):
        return "a sequence"
    assert value is not None
    found = _true_of(value)
    return None if found.joined(claim) is not None else str(found)


def _true_of(value: SSAValue | Known | Counted) -> Claim:
    """What is known of a value; not how many of its slices are there, where that follows from the data."""
    if isinstance(value, Known):
        return Claim.of(TensorInfo(value.array.shape, element_of_dtype(value.array.dtype)))
    if isinstance(value, SSAValue):
        return Claim.of(tensor_info(value.type))
    info = tensor_info(value.value.type)
    sizes = [None if axis == value.axis else size for axis, size in enumerate(info.shape)]
    return Claim(info.element, tuple(sizes))
