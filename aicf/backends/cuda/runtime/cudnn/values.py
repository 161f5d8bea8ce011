"""The values of a cuDNN call, checked: what a `LibraryNode` of each function has in its `call`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from aicf.backends.cuda.runtime.device_program import LibraryNode
from aicf.errors import ArtifactError
from aicf.support.dataclass_json import from_json_value

CONVOLUTION, ATTENTION = "cudnn.convolution", "cudnn.attention"
DTYPES: Mapping[str, str] = {"f16": "HALF", "bf16": "BFLOAT16", "f32": "FLOAT"}
"""Our names to those of `cudnn.data_type`."""
ACTIVATIONS: Mapping[str, str | None] = {
    "none": None,
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_approx_tanh",
    "silu": "swish",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
"""Our names to the methods of a cuDNN graph, with arguments as they are."""
MASKS: Mapping[str, str | None] = {"none": None, "top_left": "TOP_LEFT", "bottom_right": "BOTTOM_RIGHT"}
"""Whose diagonal the last key lies on that a query sees, to `cudnn.diagonal_alignment`."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph: sizes and strides in elements, in the order that cuDNN gives dimensions."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """What all calls have.

    Args:
        dtype: Of all tensors in memory; a key of `DTYPES`. Everything else is computed and kept in f32.
        barred_notes: `cudnn.numerical_note`: what no plan may do.
        algorithm: The plan, see `plans`; empty where the library is asked for one.
        workspace_bytes: Room for its workspace.
        operands: What each address is: names of tensors, and `workspace`.
    """

    dtype: str
    barred_notes: tuple[str, ...]
    algorithm: str
    workspace_bytes: int
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Convolution(Call):
    """``activation(x * weight + residual + bias)``, rounded once.

    Args:
        x, weight, y: ``[N, C, D1..Dk]``, ``[M, C / groups, K1..Kk]`` and ``[N, M, O1..Ok]``.
        residual: As `y`; none or one.
        bias: ``[1, M, 1..1]``; none or one.
        strides, dilations, low, high: Of windows along each dimension: steps, steps within, zeros before and after.
        activation: A key of `ACTIVATIONS`.
    """

    x: Tensor
    weight: Tensor
    y: Tensor
    residual: tuple[Tensor, ...]
    bias: tuple[Tensor, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    activation: str


@dataclass(frozen=True)
class Attention(Call):
    """``softmax(q @ k^T * scale) @ v``.

    Args:
        q, k, v, y: ``[B, H, queries or keys, elements]``.
        mask: A key of `MASKS`.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    y: Tensor
    scale: float
    mask: str


AnyCall: TypeAlias = Convolution | Attention

_CALLS: Mapping[str, type[AnyCall]] = {CONVOLUTION: Convolution, ATTENTION: Attention}
_WORDS: Mapping[str, Mapping[str, str | None]] = {"dtype": DTYPES, "activation": ACTIVATIONS, "mask": MASKS}


def read_call(node: LibraryNode) -> AnyCall:
    """The values of a node. Raises ArtifactError if they are no call of this release."""
    kind = _CALLS.get(node.function)
    if kind is None:
        raise ArtifactError(
            f"instruction '{node.name}' calls the unknown function {node.function}; use a newer aicf"
        )
    call = from_json_value(kind, node.call, f"the call of instruction '{node.name}'")
    for name, table in _WORDS.items():
        word = getattr(call, name, None)
        if word is not None and word not in table:
            raise ArtifactError(
                f"instruction '{node.name}': no call of this release: {name} '{word}' is none of {', '.join(table)}; "
                "compile it again"
            )
    return call
