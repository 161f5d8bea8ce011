# pyright: basic, reportMissingImports=false
# The frontend ships no types.
"""From the values of a call to a graph of cuDNN: its tensors, whose uids are the numbers of their addresses, and its
operations. No plan yet."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

from aicf.backends.cuda.runtime.cudnn.values import (
    ACTIVATIONS,
    DTYPES,
    MASKS,
    AnyCall,
    Attention,
    Call,
    Convolution,
    Tensor,
)
from aicf.errors import BackendUnavailable
from aicf.support.extras import install


@cache
def frontend() -> Any:
    """The frontend. Raises BackendUnavailable if it is not installed."""
    try:
        import cudnn
    except ImportError as error:
        raise BackendUnavailable(
            f"cudnn is called through nvidia-cudnn-frontend: {error}; {install('cudnn')}"
        ) from None
    _load_compiler()
    return cudnn


def _load_compiler() -> None:
    """Loads NVRTC, by which cuDNN compiles some kernels at run time: it looks for it by name, and only Python knows
    where the package has put it. Without it cuDNN does not offer those kernels."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    with suppress(DynamicLibNotFoundError):
        load_nvidia_dynamic_lib("nvrtc")


def graph_of(call: AnyCall, handle: Any) -> Any:
    """The graph of a call, as cuDNN has checked it."""
    cudnn = frontend()
    graph = cudnn.pygraph(
        io_data_type=_dtype(call),
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=handle,
    )
    match call:
        case Convolution():
            _convolution(graph, call)
        case Attention():
            _attention(graph, call)
    graph.validate()
    graph.build_operation_graph()
    return graph


def _dtype(call: Call) -> Any:
    return frontend().data_type[DTYPES[call.dtype]]


def _input(graph: Any, call: Call, name: str, tensor: Tensor) -> Any:
    found = graph.tensor(
        name=name, dim=list(tensor.sizes), stride=list(tensor.strides), data_type=_dtype(call)
    )
    found.set_uid(_uid(call, name))
    return found


def _output(call: Call, name: str, tensor: Tensor, value: Any) -> None:
    value.set_output(True).set_data_type(_dtype(call))
    value.set_dim(list(tensor.sizes)).set_stride(list(tensor.strides))
    value.set_uid(_uid(call, name))


def _uid(call: Call, name: str) -> int:
    """The number of a tensor: that of its address, from 1."""
    return 1 + call.operands.index(name)


def _convolution(graph: Any, call: Convolution) -> None:
    """Ends in the order of cuDNN's own fused operation: residual, bias, activation."""
    y = graph.conv_fprop(
        _input(graph, call, "x", call.x),
        _input(graph, call, "weight", call.weight),
        pre_padding=list(call.low),
        post_padding=list(call.high),
        stride=list(call.strides),
        dilation=list(call.dilations),
        compute_data_type=frontend().data_type.FLOAT,
    )
    for residual in call.residual:
        y = graph.add(y, _input(graph, call, "residual", residual))
    for bias in call.bias:
        y = graph.bias(y, _input(graph, call, "bias", bias))
    activation = ACTIVATIONS[call.activation]
    if activation is not None:
        y = getattr(graph, activation)(y)
    _output(call, "y", call.y, y)


def _attention(graph: Any, call: Attention) -> None:
    q, k, v = (_input(graph, call, name, getattr(call, name)) for name in ("q", "k", "v"))
    diagonal = MASKS[call.mask]
    masked: dict[str, Any] = {}
    if diagonal is not None:
        masked["diagonal_alignment"] = frontend().diagonal_alignment[diagonal]
        masked["diagonal_band_right_bound"] = 0
    y, _ = graph.sdpa(
        q=q,
        k=k,
        v=v,
        attn_scale=call.scale,
        generate_stats=False,
        compute_data_type=frontend().data_type.FLOAT,
        **masked,
    )
    _output(call, "y", call.y, y)
