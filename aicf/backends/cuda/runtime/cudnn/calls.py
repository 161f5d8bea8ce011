# pyright: basic
# The frontend ships no types.
"""cuDNN as a `LibraryModule`, see `library`: its version, handles, prepared plans, calls and offers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any

from aicf.backends.cuda.runtime.cudnn import plans
from aicf.backends.cuda.runtime.cudnn.graphs import frontend
from aicf.backends.cuda.runtime.cudnn.values import read_call
from aicf.backends.cuda.runtime.device_program import LibraryNode
from aicf.backends.cuda.runtime.library import Offer, refusing

_refusing = partial(refusing, "cudnn")


@dataclass
class Handle:
    """A handle of cuDNN on the GPU of the context in which it was opened, with the plans that were prepared by it.

    Args:
        handle: As the frontend has it.
        graphs: By the text of their calls.
        lock: Held while a call is queued: a handle has one stream at a time.
    """

    handle: Any
    graphs: dict[str, Any] = field(default_factory=dict[str, Any])
    lock: Lock = field(default_factory=Lock)


def version() -> str:
    """Version of the library that loads here, as 9.19.1. Raises BackendUnavailable if there is none."""
    with _refusing("loading the library"):
        number = frontend().backend_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def open_handle() -> Handle:
    """A handle on the GPU of the current context; not while a stream is being captured."""
    with _refusing("cudnnCreate"):
        return Handle(frontend().create_handle())


def close_handle(handle: Handle) -> None:
    """Gives a handle back, with its plans."""
    handle.graphs.clear()
    with _refusing("cudnnDestroy"):
        frontend().destroy_handle(handle.handle)


def prepare(handle: Handle, node: LibraryNode) -> None:
    """Builds the plan of a call, once for calls that are alike. Raises as `LibraryModule.prepare`."""
    key = _key(node)
    if key not in handle.graphs:
        call = read_call(node)
        with _refusing(f"the plan of instruction '{node.name}'"):
            handle.graphs[key] = plans.built(call, handle.handle)


def call(handle: Handle, node: LibraryNode, addresses: Sequence[int], stream: int) -> None:
    """Queues a call that was prepared; see `LibraryModule.call`."""
    values = read_call(node)
    at = dict(enumerate(addresses, 1))
    workspace = dict(zip(values.operands, addresses, strict=True)).get("workspace", 0)
    with _refusing(f"the call of instruction '{node.name}'"), handle.lock:
        frontend().set_stream(handle=handle.handle, stream=stream)
        graph = handle.graphs[_key(node)]
        uids = {uid: at[uid] for uid, name in enumerate(values.operands, 1) if name != "workspace"}
        graph.execute(uids, workspace, handle=handle.handle)


def offers(handle: Handle, node: LibraryNode, count: int) -> list[Offer]:
    """The plans that cuDNN's heuristic would take for a call, best first; see `LibraryModule.offers`."""
    values = read_call(node)
    with _refusing(f"the heuristic for instruction '{node.name}'"):
        found = list(islice(plans.offered(values, handle.handle), count))
    return [Offer(text, workspace, text) for text, workspace in found]


def _key(node: LibraryNode) -> str:
    return json.dumps([node.function, node.call], sort_keys=True)
