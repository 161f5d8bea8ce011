"""What NVIDIA's manual says of cuDNN's operations, on NumPy arrays in float64: no GPU and no library."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import erf, prod

import numpy as np

from aicf.backends.cuda.compiler.launches import LibraryCall
from aicf.backends.cuda.runtime.cudnn.values import Attention, Convolution, Tensor, read_call
from aicf.backends.cuda.runtime.device_program import LibraryNode

Array = np.ndarray

_ERF = np.vectorize(erf, otypes=[np.float64])
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _ERF(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def node_of(call: LibraryCall) -> LibraryNode:
    """The node of a call, as the runtime gets it."""
    return LibraryNode("instruction", call.function, "9.19.1", dict(call.call), call.operands)


def run(node: LibraryNode, logical: Mapping[str, Array]) -> Array:
    """The result of a call.

    Args:
        logical: Its operands by name, in the order of our dimensions; they are laid out as the call says.
    """
    call = read_call(node)
    if isinstance(call, Convolution):
        return _convolution(call, logical)
    return _attention(call, logical)


def _laid_out(tensor: Tensor, values: Array) -> Array:
    """The values as a view of memory that has the tensor's strides; no two elements share a place."""
    extent = 1 + sum((size - 1) * step for size, step in zip(tensor.sizes, tensor.strides, strict=True))
    memory = np.full(extent, np.nan)
    bytes_ = [step * memory.itemsize for step in tensor.strides]
    view = np.lib.stride_tricks.as_strided(memory, tensor.sizes, bytes_)
    view[...] = values.reshape(tensor.sizes)
    assert np.count_nonzero(~np.isnan(memory)) == prod(tensor.sizes)
    return view


def _convolution(call: Convolution, logical: Mapping[str, Array]) -> Array:
    x, weight = _laid_out(call.x, logical["x"]), _laid_out(call.weight, logical["weight"])
    padded = np.pad(x, [(0, 0), (0, 0), *zip(call.low, call.high, strict=True)])
    images, outputs, *counts = call.y.sizes
    groups = x.shape[1] // weight.shape[1]
    y = np.zeros((images, groups, outputs // groups, *counts))
    for tap in product(*map(range, weight.shape[2:])):
        first = [at * apart for at, apart in zip(tap, call.dilations, strict=True)]
        steps = zip(first, counts, call.strides, strict=True)
        seen = padded[(..., *(slice(at, at + (n - 1) * step + 1, step) for at, n, step in steps))]
        seen = seen.reshape(images, groups, -1, *counts)
        y += np.einsum("ngc...,gmc->ngm...", seen, weight[(..., *tap)].reshape(groups, -1, weight.shape[1]))
    total = y.reshape(call.y.sizes)
    for name, tensors in (("residual", call.residual), ("bias", call.bias)):
        for tensor in tensors:
            total = total + _laid_out(tensor, logical[name])
    return ACTIVATIONS[call.activation](total)


def _attention(call: Attention, logical: Mapping[str, Array]) -> Array:
    q, k, v = (_laid_out(getattr(call, name), logical[name]) for name in ("q", "k", "v"))
    shared = q.shape[1] // k.shape[1]
    k, v = (np.repeat(each, shared, axis=1) for each in (k, v))
    scores = q @ k.swapaxes(-1, -2) * call.scale
    rows, columns = scores.shape[-2:]
    if call.mask != "none":
        diagonal = 0 if call.mask == "top_left" else columns - rows
        scores = np.where(np.tri(rows, columns, diagonal, bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
