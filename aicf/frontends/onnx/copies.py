"""Which readers of an initializer have a copy of their own, and what the copies are called.

Exporters store equal weights once: PyTorch's makes one initializer of the scales of all norms that begin with ones, and
gives it to the others by Identity nodes called after them. Untied, each reader has a parameter of its own again:

- what an Identity node gives is a parameter of the name of its output, which is PyTorch's;
- of the other readers the first keeps the name of the initializer, and a later one has `<initializer>@<node>`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

import onnx

from aicf.errors import InvalidIR

ALL = "*"
"""The pattern of all initializers, also where there are none."""
_OF = "@"


class Copies:
    """The initializers of a graph that are untied.

    Args:
        graph: Of the model; nodes of its functions and bodies read as the nodes around them.
        untie: Names of initializers, or patterns (`*.norm.weight`).
        given: Values by name: a name of a copy among them unties it, so that what was trained untied can be run.

    Raises:
        InvalidIR: a pattern names no initializer.
    """

    def __init__(self, graph: onnx.GraphProto, untie: Sequence[str], given: Collection[str]) -> None:
        self._given = given
        self._firsts: dict[str, str] = {}
        self._identities: dict[str, str] = {}
        """Outputs of Identity nodes to the initializers that they give."""
        names = [tensor.name for tensor in graph.initializer]
        for pattern in untie:
            if pattern != ALL and not any(fnmatchcase(name, pattern) for name in names):
                raise InvalidIR(
                    f"untie: '{pattern}' names no initializer of the model; see its warning for names"
                )
        self._untied = {name for name in names if any(fnmatchcase(name, pattern) for pattern in untie)}
        known = set(names)
        for node in graph.node:
            if is_identity(node) and node.input[0] in known:
                self._identities[node.output[0]] = node.input[0]

    def is_split(self, initializer: str) -> bool:
        """Whether readers of an initializer have copies."""
        return initializer in self._untied or any(
            name.startswith(initializer + _OF) or self._identities.get(name) == initializer
            for name in self._given
        )

    def of_identity(self, node: onnx.NodeProto) -> str | None:
        """The name of the copy that an Identity node gives; None if it gives none."""
        if not is_identity(node):
            return None
        output = node.output[0]
        initializer = self._identities.get(output)
        return output if initializer is not None and self._is_copied(initializer, output) else None

    def of_reader(self, initializer: str, name: str) -> str | None:
        """The name of the copy that a node reads; None if it reads the initializer itself.

        Args:
            name: Of the node, unique in the model.
        """
        if self._firsts.setdefault(initializer, name) == name:
            return None
        copy = f"{initializer}{_OF}{name}"
        return copy if self._is_copied(initializer, copy) else None

    def _is_copied(self, initializer: str, copy: str) -> bool:
        return initializer in self._untied or copy in self._given


def is_identity(node: onnx.NodeProto) -> bool:
    """Whether a node gives what it reads."""
    return (
        node.op_type == "Identity" and node.domain in ("", "ai.onnx") and bool(node.output and node.output[0])
    )
