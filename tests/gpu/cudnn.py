"""What cuDNN runs in the GPU tests: convolutions with the epilogues that it has, and attention.

The plan is what the library's heuristic offers on the device; see `artifacts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from aicf.frontends.builder import Graph
from tests.gpu import programs
from tests.gpu.convolutions import Convolution, convolutions, image_layer

CONV, ATTENTION = "cuda.conv_cudnn", "cuda.attention_cudnn"


@dataclass(frozen=True)
class LibraryProgram:
    """A program with one instruction that cuDNN is to run.

    Args:
        kernel: The kernel.
        build: Makes it.
        policy: What the compiler is told.
        rounds: Whether f32 operands may be rounded to TF32.
    """

    kernel: str
    build: Callable[[], Graph]
    policy: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rounds: bool = False


def _convolution(dtype: str, made: Convolution, rounds: bool = False) -> LibraryProgram:
    lies = "channels_last" if made.result_last else "row_major"
    policy = {"layouts": {"*": lies}, "tf32": rounds}
    return LibraryProgram(CONV, partial(convolutions, dtype, [made]), policy, rounds)


def _attention(*arguments: Any) -> LibraryProgram:
    return LibraryProgram(ATTENTION, partial(programs.attention_op, *arguments))


_LAYER = image_layer(2, 64, 96, 28)
_UNEVEN = replace(_LAYER, dilations=(2, 1), low=(0, 2), high=(1, 0), strides=(1, 2), after="relu")
_LINE = Convolution(2, 32, 48, 1, (77,), (5,), (1,), (1,), (2,), (2,), True, False, True, after="bias")
_VOLUME = Convolution(
    1,
    16,
    32,
    1,
    (9, 10, 11),
    (3,) * 3,
    (1,) * 3,
    (1,) * 3,
    (1,) * 3,
    (1,) * 3,
    True,
    False,
    True,
    after="relu",
)

PROGRAMS: dict[str, LibraryProgram] = {
    "conv-residual": _convolution("f16", _LAYER),
    "conv-residual-bf16": _convolution("bf16", image_layer(1, 128, 128, 14)),
    "conv-plain": _convolution("bf16", replace(_LAYER, after="nothing")),
    "conv-single": _convolution("f16", image_layer(2, 64, 256, 14, 1, after="bias")),
    "conv-strided": _convolution("f16", image_layer(2, 64, 128, 28, 3, 2, after="relu")),
    "conv-weight-given": _convolution("f16", replace(_LAYER, is_param=False)),
    "conv-stem": _convolution("f16", image_layer(1, 3, 64, 112, 7, 2, last=False, after="relu")),
    "conv-row-major": _convolution("bf16", image_layer(2, 64, 64, 28, last=False)),
    "conv-uneven": _convolution("f16", _UNEVEN),
    "conv-groups": _convolution("f16", replace(_LAYER, groups=4, after="relu")),
    "conv-line": _convolution("f16", _LINE),
    "conv-volume": _convolution("bf16", _VOLUME),
    "conv-silu": _convolution("f16", replace(_LAYER, after="silu")),
    "conv-gelu": _convolution("bf16", replace(_LAYER, after="gelu")),
    "conv-f32": _convolution("f32", image_layer(1, 64, 64, 14)),
    "conv-tf32": _convolution("f32", image_layer(2, 64, 64, 28), rounds=True),
    "attention": _attention("f16", 128, 128, 64, 4),
    "attention-causal": _attention("bf16", 200, 200, 64, 4, 0),
    "attention-later": _attention("f16", 64, 150, 128, 4, 86),
    "attention-grouped": _attention("f16", 256, 256, 64, 2),
    "attention-one-head": _attention("bf16", 128, 333, 64, 1),
    "attention-wide": _attention("f16", 130, 130, 256, 4, 0),
    "attention-odd": _attention("f16", 77, 133, 40, 4),
    "attention-token": _attention("f16", 1, 333, 64, 4),
}
"""By name; each becomes the case `cudnn-NAME`."""
