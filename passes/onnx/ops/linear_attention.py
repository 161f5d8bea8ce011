"""ONNX's LinearAttention and CausalConvWithState: layers that carry a state from token to token.

A recurrence over tokens is written out, one state after the other: the number of tokens is static.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.recurrent import MAX_WRITTEN_STEPS
from aicf.semantics import composite_element

_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""Whether a rule lets the state decay, and whether it writes only what the state does not hold."""

_QUERY, _KEY, _VALUE, _PAST, _DECAY, _BETA = range(6)
"""The operands' numbers."""


@row("LinearAttention", since=27)
def _linear_attention(node: Node) -> Result:
    """A state of each head that each token decays, writes key by value into, and reads with its queries."""
    gated, corrected = _rule(node)
    heads, groups = (node.attributes.int(name, 0) for name in ("q_num_heads", "kv_num_heads"))
    if groups < 1 or heads % groups or heads < 1:
        raise node.invalid(
            f"q_num_heads is {heads} and kv_num_heads {groups}; the one is a multiple of the other"
        )
    tokens, size = node.shape(_QUERY)[1], node.shape(_QUERY)[2] // heads
    _check_written(node, tokens, "tokens (dimension 1 of operand 0)")
    query, key, value = (
        _of_heads(node, _QUERY, heads),
        _of_heads(node, _KEY, groups),
        _of_heads(node, _VALUE, groups),
    )
    decay = node.apply(logical.ExpOp, _of_heads(node, _DECAY, groups), name="decay") if gated else None
    beta = _of_heads(node, _BETA, node.shape(_BETA)[2]) if corrected else None
    scale = node.attributes.float("scale", 0.0) or size**-0.5
    state = _first_state(node, key, value)
    outputs: list[SSAValue] = []
    for token in range(tokens):
        k, v = _row(node, key, token), _row(node, value, token)
        if decay is not None:
            factor = node.transpose(_row(node, decay, token), (0, 1, 3, 2), "decay")
            state = node.elementwise(logical.MulOp, state, factor, name="decayed")
        if beta is not None:
            held = node.apply(logical.MatmulOp, k, state, name="held")
            v = node.elementwise(
                logical.MulOp, _row(node, beta, token), node.apply(logical.SubOp, v, held), name="news"
            )
        written = node.elementwise(
            logical.MulOp, node.transpose(k, (0, 1, 3, 2), "column"), v, name="written"
        )
        state = node.apply(logical.AddOp, state, written, name="state")
        outputs.append(node.apply(logical.MatmulOp, _queries(node, query, token, groups), state, name="read"))
    return [
        _gathered(node, outputs, scale),
        node.cast(state, node.element(_PAST if node.has(_PAST) else 0), "present"),
    ][: node.outputs]


def _check_written(node: Node, count: int, what: str) -> None:
    if count > MAX_WRITTEN_STEPS:
        raise node.unsupported(
            f"it has {count} {what}, which are written out one by one; at most {MAX_WRITTEN_STEPS} are: use shorter "
            "sequences and carry the state"
        )


def _rule(node: Node) -> tuple[bool, bool]:
    name = node.attributes.string("update_rule", "gated_delta")
    if name not in _RULES:
        raise node.invalid(f'update_rule is "{name}"; use one of {", ".join(_RULES)}')
    for index, what, needed in zip((_DECAY, _BETA), ("decay", "beta"), _RULES[name], strict=True):
        if node.has(index) != needed:
            raise node.invalid(f'update_rule "{name}" {"needs" if needed else "takes no"} {what}')
    return _RULES[name]


def _of_heads(node: Node, index: int, heads: int) -> SSAValue:
    """[batch, tokens, heads * size] as [batch, heads, tokens, size], in the wide type."""
    batch, tokens, last = node.shape(index)
    if last % heads:
        raise node.invalid(
            f"the last dimension of operand {index} ({node.type(index)}) is no multiple of {heads} heads"
        )
    wide = node.cast(node.operand(index), composite_element(node.element(index)), "wide")
    apart = node.reshape(wide, (batch, tokens, heads, last // heads), "heads")
    return node.transpose(apart, (0, 2, 1, 3), "heads_first")


def _first_state(node: Node, key: SSAValue, value: SSAValue) -> SSAValue:
    """[batch, heads, size of a key, size of a value]."""
    info = tensor_info(key.type)
    sizes = (*info.shape[:2], info.shape[3], tensor_info(value.type).shape[3])
    if not node.has(_PAST):
        return node.full(0.0, sizes, info.element)
    if node.shape(_PAST) != sizes:
        raise node.invalid(f"past_state is {node.type(_PAST)}; it is {'x'.join(map(str, sizes))}")
    return node.cast(node.operand(_PAST), info.element, "past")


def _row(node: Node, value: SSAValue, token: int) -> SSAValue:
    """What a value has of a token, with size 1 in place of the tokens."""
    batch, heads, _, size = tensor_info(value.type).shape
    return node.slice(value, (0, 0, token, 0), (batch, heads, 1, size), suffix="token")


def _queries(node: Node, query: SSAValue, token: int, groups: int) -> SSAValue:
    """The queries of a token, those that share a state as rows of one matrix."""
    batch, heads, _, size = tensor_info(query.type).shape
    return node.reshape(_row(node, query, token), (batch, groups, heads // groups, size), "queries")


def _gathered(node: Node, outputs: list[SSAValue], scale: float) -> SSAValue:
    """What was read for each token, scaled, as [batch, tokens, heads * size]."""
    batch, groups, share, size = tensor_info(outputs[0].type).shape
    rows = [node.reshape(output, (batch, 1, groups * share * size), "row") for output in outputs]
    scaled = node.apply(logical.MulOp, node.concat(rows, 1), scale, name="scaled")
    return node.cast(scaled, node.element(_QUERY), "narrow")


@row("CausalConvWithState", since=27)
def _causal_conv(node: Node) -> Result:
    """Filters each channel by itself over a token and those before it; before the first token comes the past state."""
    batch, channels, tokens = node.shape(0)
    taps = node.shape(1)[2]
    _check_written(node, taps, "taps (dimension 2 of operand 1)")
    element, wide = node.element(0), composite_element(node.element(0))
    activation = node.attributes.string("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise node.invalid(f'activation is "{activation}"; use none, silu or swish')
    padded = _with_past(node, taps - 1)
    weight = node.cast(node.reshape(node.operand(1), (channels, taps), "taps"), wide, "wide")
    terms = [
        node.elementwise(
            logical.MulOp,
            node.cast(
                node.slice(padded, (0, 0, tap), (batch, channels, tokens), suffix="shifted"), wide, "wide"
            ),
            node.reshape(node.slice(weight, (0, tap), (channels, 1), suffix="tap"), (channels, 1)),
        )
        for tap in range(taps)
    ]
    total = reduce(lambda sum_, term: node.apply(logical.AddOp, sum_, term), terms)
    if node.has(2):
        bias = node.cast(node.reshape(node.operand(2), (channels, 1), "bias"), wide, "wide")
        total = node.elementwise(logical.AddOp, total, bias, name="biased")
    output = node.cast(total, element, "output")
    if activation != "none":
        output = node.apply(logical.SiluOp, output)
    if taps == 1:
        return [output, np.zeros((batch, channels, 0), element.dtype)][: node.outputs]
    present = node.slice(padded, (0, 0, tokens), (batch, channels, taps - 1), suffix="present_state")
    return [output, present][: node.outputs]


def _with_past(node: Node, past: int) -> SSAValue:
    """The tokens after those of the past, or after zeros."""
    x, (batch, channels, _) = node.operand(0), node.shape(0)
    if not past:
        return x
    state = node.operand(3) if node.has(3) else node.full(0.0, (batch, channels, past), node.element(0))
    return node.concat([state, x], 2, "padded")
