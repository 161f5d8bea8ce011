"""Dropout and random numbers. In evaluation a dropout changes nothing; what is random comes from a Philox stream.

In training the stream follows from the metas ``seed`` and ``step``, so each step draws anew and a seed repeats all of
them. In evaluation a program gives the same numbers at every run. The key of a stream is made of the node's ``seed``
and its name, so that no two nodes, and no two iterations of a loop, draw the same.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.logical import PhiloxForm
from aicf.dialects.step_names import SEED, STEP
from aicf.dialects.types import ElementType, element_named
from aicf.passes.onnx.ops.base import Node, Result, row
from aicf.passes.onnx.ops.element_types import element_of_onnx

_F32, _BOOL = element_named("f32"), element_named("i1")
_WORDS = 4
"""Random words of one counter."""


@row("Dropout", since=7)
def _dropout_7(node: Node) -> Result:
    """X itself: a node of these opsets is at inference; all of the mask is kept."""
    mask = _BOOL if node.opset >= 10 else node.element(0)
    return [node.operand(0), node.full(1, node.shape(0), mask)][: node.outputs]


@row("Dropout", since=12)
def _dropout(node: Node) -> Result:
    """X itself, or in training X / (1 - ratio) where it is kept and 0 elsewhere; and which elements are kept.

    Where the mode is known at run time only, the model decides it at each run.
    """
    x, training = node.operand(0), node.known(2)
    if not node.has(2) or (training is not None and not node.trains(bool(training))):
        return [x, node.full(1, node.shape(0), _BOOL)][: node.outputs]
    uniform = _draw(node, node.attributes.int("seed", 0), "uniform", node.shape(0), _F32)
    ratio = node.cast(node.operand(1), _F32, "ratio") if node.has(1) else node.full(0.5, (), _F32)
    kept = node.add(logical.CompareOp("ge", uniform, node.broadcast_to(ratio, node.shape(0))), "kept")
    if training is None:
        at_inference = node.apply(logical.NotOp, node.operand(2), name="at_inference")
        kept = node.elementwise(logical.OrOp, at_inference, kept, name="kept")
        ratio = node.apply(logical.SelectOp, node.operand(2), ratio, node.splat(0.0, ratio), name="ratio")
    share = node.apply(logical.SubOp, node.splat(1.0, ratio), ratio, name="share")
    scaled = node.elementwise(logical.DivOp, x, node.cast(share, node.element(0), "share"), name="scaled")
    return [node.apply(logical.SelectOp, kept, scaled, node.splat(0.0, x)), kept][: node.outputs]


@row("Bernoulli", since=15)
def _bernoulli(node: Node) -> Result:
    """1 with the probability that the operand says, else 0."""
    element = element_of_onnx(node.attributes.int("dtype", 0), node.element(0))
    chance = node.operand(0)
    uniform = _draw(node, _seed_of_float(node), "uniform", node.shape(0), node.element(0))
    is_one = node.add(logical.CompareOp("lt", uniform, chance), "drawn")
    return node.cast(is_one, element, "cast")


@row("RandomUniform", since=1)
@row("RandomUniformLike", since=1)
def _random_uniform(node: Node) -> Result:
    """Numbers from low to high, all equally likely."""
    low, high = (node.attributes.float(name, default) for name, default in (("low", 0.0), ("high", 1.0)))
    return _moved(node, "uniform", high - low, low)


@row("RandomNormal", since=1)
@row("RandomNormalLike", since=1)
def _random_normal(node: Node) -> Result:
    """Numbers of the normal distribution."""
    return _moved(node, "normal", node.attributes.float("scale", 1.0), node.attributes.float("mean", 0.0))


def _moved(node: Node, form: PhiloxForm, factor: float, start: float) -> SSAValue:
    """factor * random + start, in the shape that is stated or the operand's."""
    if node.op_type.endswith("Like"):
        sizes, default = node.shape(0), node.element(0)
    else:
        sizes, default = tuple(node.attributes.ints("shape", [])), _F32
    element = element_of_onnx(node.attributes.int("dtype", 0), default)
    numbers = _draw(node, _seed_of_float(node), form, sizes, element)
    return node.apply(logical.AddOp, node.apply(logical.MulOp, numbers, factor), start)


def _seed_of_float(node: Node) -> int:
    """The bits of the attribute ``seed``, a float; 0 if there is none."""
    return struct.unpack("<i", struct.pack("<f", node.attributes.float("seed", 0.0)))[0]


def _draw(node: Node, seed: int, form: PhiloxForm, sizes: Sequence[int], element: ElementType) -> SSAValue:
    """Random numbers, other ones for each node and seed, and in training for each step."""
    digest = hashlib.sha256(f"{seed} {node.path}".encode()).digest()
    own = int.from_bytes(digest[:8], "little", signed=True)
    key, offset = node.meta(SEED), node.meta(STEP)
    if key is None or offset is None:
        key, offset = node.constant(np.int64(own)), node.constant(np.int64(0))
    else:
        counters = max(1, -(-math.prod(sizes) // _WORDS))
        key = node.apply(logical.AddOp, key, own, name="key")
        offset = node.apply(logical.MulOp, offset, counters, name="offset")
    return node.apply(logical.PhiloxOp, key, offset, form=form, sizes=sizes, element=element)
