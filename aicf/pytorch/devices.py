"""The device that the program of a graph runs on. What PyTorch has on the host beside it is copied there and back."""

from __future__ import annotations

from typing import Any

import torch

from aicf.errors import PolicyError
from aicf.frontends.torch.nodes import is_tensor, unsupported
from aicf.inference.devices import device_of_backend
from aicf.pytorch.options import TorchOptions

HOST = torch.device("cpu")


def device_of_graph(graph: Any) -> torch.device:
    """The GPU that tensors of a graph are on; the CPU if none is on a GPU.

    Args:
        graph: A `torch.fx.Graph` with fake tensors in its metadata. Arguments that nothing reads do not count.

    Raises:
        UnsupportedOp: tensors are on several GPUs, or on a device that is neither the CPU nor a GPU of CUDA.
    """
    found: torch.device | None = None
    for node in graph.nodes:
        fake = node.meta.get("val")
        if not is_tensor(fake) or fake.device.type == "cpu" or not node.users:
            continue
        if fake.device.type != "cuda":
            raise unsupported(
                node,
                f"a tensor is on {fake.device}",
                "move it to the CPU or to a GPU of CUDA before it is used",
            )
        if found not in (None, fake.device):
            raise unsupported(
                node,
                f"a tensor is on {fake.device}, and another one of the graph is on {found}",
                "move the model and its inputs to one GPU",
            )
        found = fake.device
    return found or HOST


def check_target(options: TorchOptions, device: torch.device) -> None:
    """Raises PolicyError if the option `target` names a backend that does not run on the device of a graph."""
    if options.target is None:
        return
    wanted = device_of_backend(options.target.partition(":")[0])
    if wanted != device.type:
        raise PolicyError(
            f"options: target is '{options.target}', and the tensors of the graph are on {device}; leave target out, "
            f"or move the model and its inputs, and create tensors, on {wanted}, as with .to('{wanted}')"
        )
