"""Questions about a node of a traced graph: its op, its results, its source. Importing it does not import PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

from aicf.errors import UnsupportedOp
from aicf.frontends.torch.locations import line_of, module_path, text_of
from aicf.frontends.torch.ops import ROWS, Call

NO_OPS: frozenset[str] = frozenset(
    {
        "copy_.default",
        "_assert_async.msg",
        "_assert_tensor_metadata.default",
        "_assert_scalar.default",
        "sym_constrain_range.default",
        "sym_constrain_range_for_size.default",
    }
)
"""Ops without a tensor as a result, or that `lower_graph` handles itself."""


FALL_BACK = "write it with other ops, or compile with options={'fallback': 'eager'}"
LEAVE_OUT = "write it with other ops, or leave it outside of the model"


def check_ops(graph: Any, way_out: str = FALL_BACK) -> None:
    """Raises UnsupportedOp, which lists the ops of a graph without a counterpart and locates the first."""
    missing = [node for node in graph.nodes if not is_supported(node)]
    if missing:
        ops = sorted({op_name(node) for node in missing})
        others = f" (the graph has {len(ops)} such ops: {', '.join(ops)})" if len(ops) > 1 else ""
        raise unsupported(
            missing[0],
            f"op {op_name(missing[0])} is not supported{others}",
            way_out,
        )


def is_supported(node: Any) -> bool:
    """Whether the op of a node has a counterpart; its arguments are not checked."""
    if node.op != "call_function":
        return True
    if not is_op(node):  # a function of Python on sizes, or an op of higher order, which runs a graph
        return isinstance(node.target, FunctionType | BuiltinFunctionType)
    return overload_of(node) in ROWS or overload_of(node) in NO_OPS or not gives_tensors(node)


def unsupported(node: Any, what: str, way_out: str) -> UnsupportedOp:
    """The error for a node without a counterpart: it names the node, its module and the user's line."""
    path = module_path(node.meta)
    within = f", module '{path}'" if path else ""
    return UnsupportedOp(
        f"{what} (node '{node.name}'{within}); {way_out}", location=text_of(line_of(node.meta))
    )


_ATTENTION, _BACK = "_scaled_dot_product_", "_backward"


def is_random_state(node: Any) -> bool:
    """Whether a node is, or computes, the state of random numbers that an attention passes to its backward op.

    PyTorch has it as u64 for some libraries; only attention reads it.
    """
    if node.op == "placeholder":
        return bool(node.users) and all(map(_is_attention, node.users))
    source = node.args[0] if is_getitem(node) else node
    return _is_attention(source)


def _is_attention(node: Any) -> bool:
    return base_op(node).startswith(_ATTENTION)


def is_exact_attention(node: Any) -> bool:
    """Whether a node is an attention without dropout: it is deterministic, although PyTorch tags it as random."""
    return _is_attention(node) and not _drops(node)


def drops_attention(graph: Any) -> bool:
    """Whether a graph has an attention with dropout, forward or backward."""
    return any(map(_drops, graph.nodes))


def check_recomputed(graph: Any) -> None:
    """Raises UnsupportedOp if a backward part recomputes an attention with dropout: it would drop other weights."""
    for node in graph.nodes:
        if _drops(node) and not base_op(node).endswith(_BACK):
            raise unsupported(
                node,
                f"{op_name(node)} is recomputed in the backward part, with other weights dropped",
                "give it memory_budget=1.0",
            )


def _drops(node: Any) -> bool:
    if not _is_attention(node):
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    at = names.index("dropout_p")
    rate = node.kwargs.get("dropout_p", node.args[at] if at < len(node.args) else 0.0)
    return bool(rate)


_OF_CPU, _NOT_READ = "_for_cpu", ("out", "logsumexp")


def forget_sums(graph: Any) -> None:
    """Takes the results of attentions on a GPU from the arguments of their backward ops, which compute them again, so
    that nothing saves them. The queries take their place, since the arguments must be something."""
    for node in graph.nodes:
        name = base_op(node)
        if not (_is_attention(node) and name.endswith(_BACK)) or _OF_CPU in name or _drops(node):
            continue
        names = [argument.name for argument in node.target._schema.arguments]
        for unread in _NOT_READ:
            node.update_arg(names.index(unread), node.args[names.index("query")])


def items(value: Any) -> list[Any]:
    """Several results as a list, or one in a list."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]


def is_tensor(fake: Any) -> bool:
    """Whether a value of PyTorch, or a fake one, is a tensor."""
    return hasattr(fake, "dtype") and hasattr(fake, "stride")


def gives_tensors(node: Any) -> bool:
    """Whether a result of a node is a tensor."""
    fake = node.meta.get("val")
    return any(map(is_tensor, items(fake)))


def is_node(value: Any) -> bool:
    """Whether a value is a node of a `torch.fx.Graph`."""
    return type(value).__name__ == "Node"


def is_getitem(node: Any) -> bool:
    """Whether a node takes one of the results of another node."""
    return getattr(node.target, "__name__", "") == "getitem"


def is_op(node: Any) -> bool:
    """Whether a node calls an op of PyTorch, which has a schema."""
    return hasattr(node.target, "_schema")


def op_name(node: Any) -> str:
    """The op as PyTorch calls it: `aten.add.Tensor`."""
    return str(node.target)


def overload_of(node: Any) -> str:
    """The key of the op map: the overload, without `aten.`."""
    return str(node.target).removeprefix("aten.") if is_op(node) else ""


def short_name(node: Any) -> str:
    """The name of the op without namespace and overload."""
    return overload_of(node).split(".")[0].strip("_") or node.name


def used_results(node: Any) -> frozenset[int]:
    """The results of a node that something reads."""
    return frozenset(user.args[1] for user in node.users if is_getitem(user))


def base_op(node: Any) -> str:
    """The name of the op without its overload."""
    return overload_of(node).split(".")[0]


def call_of(node: Any) -> Call:
    """The arguments of a node, by their names in the schema of its op."""
    schema = node.target._schema.arguments
    defaults = {argument.name: argument.default_value for argument in schema}
    passed = {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
    return defaults | passed | node.kwargs
