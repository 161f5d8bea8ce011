"""Functions: of the model, and those by which the standard defines some of its ops."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import onnx
import onnx.defs

from aicf.errors import InvalidIR, UnsupportedOp

if TYPE_CHECKING:
    from aicf.frontends.onnx.reading import HasRow

_MAX_DEPTH = 64
MAX_EXPANDED = 1 << 15
"""Most nodes that the calls of a model expand into."""

_WAY_OUT = "replace it by ops of docs/onnx-support.md, or give it a function body in the model"
_WAYS_OUT = {
    "com.microsoft": "ONNX Runtime writes it where it optimises or quantises: docs/onnx.md says what to bring instead"
}
"""What to do about an op without a row, for domains that have an answer of their own."""


class Functions:
    """Which nodes are calls of functions, and what they call.

    `prefix` precedes the names of nodes: it lists the calls that are being read, `outer/inner/`.
    """

    def __init__(self, model: onnx.ModelProto, opsets: Mapping[str, int], has_row: HasRow) -> None:
        self._own = {(_domain(entry.domain), entry.name): entry for entry in model.functions}
        self._graph_opsets = dict(opsets)
        self._opsets = dict(opsets)
        self._has_row = has_row
        self._depth = 0
        self._expanded = 0
        self.prefix = ""

    def domain_of(self, node: onnx.NodeProto) -> str:
        """The domain of a node's op, "" for ONNX's own."""
        return _domain(node.domain)

    def opset_of(self, node: onnx.NodeProto) -> int | None:
        """The opset of a node's domain, where it is not the one of the graph."""
        domain = _domain(node.domain)
        version = self._opsets.get(domain)
        return None if version == self._graph_opsets.get(domain) else version

    def body_of(self, node: onnx.NodeProto, name: str) -> onnx.FunctionProto | None:
        """What a node calls; None if it is an op with a row.

        Raises:
            UnsupportedOp: it is an op without row and without function body.
        """
        domain = _domain(node.domain)
        if (own := self._own.get((domain, node.op_type))) is not None:
            return own
        version = self._opsets.get(domain)
        if version is None:
            raise InvalidIR(
                f"{node.op_type} '{name}': the model imports no opset of domain \"{domain or 'ai.onnx'}\""
            )
        if self._has_row(domain, node.op_type, version):
            return None
        if (body := _schema_body(node, domain, version)) is not None:
            return body
        shown = domain or "ai.onnx"
        raise UnsupportedOp(
            f"op '{node.op_type}' of domain '{shown}' opset {version} is not supported (node '{name}'); "
            f"{_WAYS_OUT.get(domain, _WAY_OUT)}"
        )

    def nodes_of(self, function: onnx.FunctionProto, call: onnx.NodeProto, name: str) -> list[onnx.NodeProto]:
        """The nodes of a function with the attributes of the call in the places that refer to them.

        Raises:
            UnsupportedOp: the calls of the model grow beyond bounds.
        """
        self._expanded += len(function.node)
        if self._expanded > MAX_EXPANDED:
            raise UnsupportedOp(
                f"the model: its calls of functions expand into more than {MAX_EXPANDED} nodes"
            )
        given = {attr.name: attr for attr in function.attribute_proto}
        given.update({attr.name: attr for attr in call.attribute})
        return [_bound(node, given) for node in function.node]

    @contextmanager
    def entered(self, function: onnx.FunctionProto, name: str) -> Generator[None]:
        """While the nodes of a function are read, the function's own opsets hold.

        Raises:
            UnsupportedOp: calls are nested too deeply, as where the bodies of the standard lead back to one another.
        """
        if self._depth == _MAX_DEPTH:
            raise UnsupportedOp(
                f"function {function.name}: calls are nested more than {_MAX_DEPTH} deep; inline some"
            )
        opsets, prefix = self._opsets, self.prefix
        self._opsets = {**opsets, **{_domain(entry.domain): entry.version for entry in function.opset_import}}
        self.prefix = f"{name}/"
        self._depth += 1
        yield
        self._depth -= 1
        self._opsets, self.prefix = opsets, prefix


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _schema_body(node: onnx.NodeProto, domain: str, version: int) -> onnx.FunctionProto | None:
    """The function body that the standard gives for the op in that opset."""
    if not onnx.defs.has(node.op_type, version, domain):
        return None
    schema = onnx.defs.get_schema(node.op_type, version, domain)
    body: onnx.FunctionProto = schema.function_body
    if not body.node:
        return None
    # What a node leaves out has the schema's default, which the body's references to attributes do not say.
    found = onnx.FunctionProto()
    found.CopyFrom(body)
    found.attribute_proto.extend(
        attribute.default_value for attribute in schema.attributes.values() if attribute.default_value.type
    )
    return found


def _bound(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attr in node.attribute:
        if attr.ref_attr_name:
            if attr.ref_attr_name in given:
                bound = copy.attribute.add()
                bound.CopyFrom(given[attr.ref_attr_name])
                bound.name = attr.name
            continue
        bound = copy.attribute.add()
        bound.CopyFrom(attr)
        if attr.type == onnx.AttributeProto.GRAPH:
            inner = [_bound(entry, given) for entry in attr.g.node]
            del bound.g.node[:]
            bound.g.node.extend(inner)
    return copy
