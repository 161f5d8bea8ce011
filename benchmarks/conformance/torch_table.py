"""Which overloads of ATen are core, and where sample calls of each come from.

PyTorch's OpInfo database has sample inputs by the names of its Python functions. Most core ops have the name of
theirs; the table here has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

Call = tuple[list[Any], dict[str, Any]]
"""Arguments of an overload: positional ones, and those by name."""

_F = "nn.functional."
_CONVOLUTIONS = tuple(f"{_F}{name}{rank}d" for name in ("conv", "conv_transpose") for rank in (1, 2, 3))
_CASTS = ("to", "float", "double", "half", "bfloat16", "long", "int", "bool", "byte")

OPINFOS: Mapping[str, Sequence[str]] = {
    "_adaptive_avg_pool2d": (f"{_F}adaptive_avg_pool2d",),
    "_adaptive_avg_pool3d": (f"{_F}adaptive_avg_pool3d",),
    "_cdist_forward": ("cdist",),
    "_fft_c2r": ("fft.irfft",),
    "_fft_r2c": ("fft.rfft",),
    "_log_softmax": ("log_softmax",),
    "_native_batch_norm_legit_no_training": ("_native_batch_norm_legit",),
    "_pdist_forward": (f"{_F}pdist",),
    "_softmax": ("softmax",),
    "_to_copy": _CASTS,
    "alias": ("alias_copy",),
    "convolution": _CONVOLUTIONS,
    "copy": ("maximum",),
    "index": ("__getitem__",),
    "max_pool2d_with_indices": (f"{_F}max_pool2d",),
    "max_pool3d_with_indices": (f"{_F}max_pool3d",),
    "native_dropout": (f"{_F}dropout",),
    "reflection_pad1d": (f"{_F}pad.reflect",),
    "reflection_pad2d": (f"{_F}pad.reflect",),
    "reflection_pad3d": (f"{_F}pad.reflect",),
    "replication_pad2d": (f"{_F}pad.replicate",),
    "replication_pad3d": (f"{_F}pad.replicate",),
    "upsample_bilinear2d": (f"{_F}interpolate.bilinear",),
    "upsample_nearest2d": (f"{_F}interpolate.nearest",),
}
"""OpInfos of the ops whose name is not theirs: a name, or a name and its variant."""

GRADIENTS: Mapping[str, Sequence[str]] = {
    "_adaptive_avg_pool2d_backward": (f"{_F}adaptive_avg_pool2d",),
    "_embedding_bag": (f"{_F}embedding_bag",),
    "avg_pool2d_backward": (f"{_F}avg_pool2d",),
    "col2im": (f"{_F}unfold",),
    "convolution_backward": _CONVOLUTIONS,
    "embedding_dense_backward": (f"{_F}embedding",),
    "max_pool2d_with_indices_backward": (f"{_F}max_pool2d",),
    "native_group_norm_backward": (f"{_F}group_norm",),
    "native_layer_norm_backward": (f"{_F}layer_norm",),
}
"""Ops that are called with gradients alone, and the OpInfos whose gradients call them."""


def core_overloads() -> list[Any]:
    """Every overload of ATen that PyTorch tags as core, in the order of their names."""
    names = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    overloads = (_overload(name.removeprefix("aten::")) for name in names)
    return sorted((each for each in overloads if torch.Tag.core in each.tags), key=str)


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def apart(overload: Any) -> str | None:
    """Why an overload is not measured; None for those that are."""
    if base_name(overload).startswith("sym_"):
        return "gives a number of the shape, no tensor"
    if base_name(overload) == "_local_scalar_dense":
        return "gives an element as a number of Python, no tensor"
    if any(argument.is_out for argument in overload._schema.arguments):
        return "writes into a tensor that is given; traced graphs call the functional overload"
    return None


def base_name(overload: Any) -> str:
    """The name of the op, without namespace and overload."""
    return str(overload).split(".")[1]


def opinfos_of(overload: Any) -> list[Any]:
    """The OpInfos whose samples call an overload, or whose gradients do."""
    base = base_name(overload)
    names = GRADIENTS.get(base) or OPINFOS.get(base)
    if names is not None:
        return [
            info for info in op_db if info.name in names or f"{info.name}.{info.variant_test_name}" in names
        ]
    own = {base, f"{_F}{base}"}
    return [info for info in op_db if info.name in own or info.aten_name == base]


# Ops that no function of Python calls as they are, from the samples of one that is near.


def _without_training(args: list[Any], named: dict[str, Any]) -> Call:
    return [*args[:5], *args[6:]], named


def _dropout(args: list[Any], named: dict[str, Any]) -> Call:
    return [args[0], named.get("p", 0.5), named.get("training", True)], {}


def _upsample(args: list[Any], named: dict[str, Any]) -> Call:
    size, scale, *_ = [*args[1:], None, None]
    size, scale = named.get("size", size), named.get("scale_factor", scale)
    rank = args[0].dim() - 2
    sizes = [size] * rank if isinstance(size, int) else size
    scales = [float(scale)] * rank if isinstance(scale, int | float) else scale
    return [args[0], sizes], {"scale_factors": scales}


def _bilinear(args: list[Any], named: dict[str, Any]) -> Call:
    (value, sizes), scales = _upsample(args, named)
    return [value, sizes, bool(named.get("align_corners", False))], scales


ADAPTERS: Mapping[str, Callable[[list[Any], dict[str, Any]], Call]] = {
    "_native_batch_norm_legit_no_training": _without_training,
    "native_dropout": _dropout,
    "upsample_bilinear2d": _bilinear,
    "upsample_nearest2d": _upsample,
}

OWN: Mapping[str, Callable[[torch.dtype, str], list[Call]]] = {
    "rand": lambda dtype, device: [
        ([list(shape)], {"dtype": dtype, "device": device}) for shape in ((), (5,), (64, 33))
    ],
    "randperm": lambda dtype, device: [
        ([count], {"dtype": dtype, "device": device}) for count in (1, 7, 100)
    ],
}
"""Calls of ops that no OpInfo has, for an element type and a device."""
OWN_DTYPES: Mapping[str, Sequence[torch.dtype]] = {
    "rand": (torch.float32, torch.float16, torch.bfloat16, torch.float64),
    "randperm": (torch.int64, torch.float32),
}
