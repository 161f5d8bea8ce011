"""Inputs and outputs of a session on memory of the caller: bound once, run many times, nothing copied on the host.

A binding follows the shapes of what is bound: other shapes are another program, which is found or made as for a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aicf.errors import InputMismatch
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.ports import reject_unknown

if TYPE_CHECKING:
    from aicf.inference.session import InferenceSession


class Binding:
    """Memory for the inputs and outputs of a session. For one thread at a time.

    NumPy arrays, anything with DLPack and, on a GPU, with `__cuda_array_interface__` are read and written where they
    are. Outputs that are not bound get memory of ours, which every run writes anew.

    Args:
        session: Whose programs run.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._bound: dict[str, Any] = {}
        self._label = ""
        self._graph_exec: GraphExec | None = None

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> Binding:
        """Binds inputs and outputs by name, in place of what was bound under these names; gives itself.

        Raises:
            InputMismatch: a name is unknown, or memory does not fit; nothing is bound then. What can be told only with
                all inputs is told by the bind that completes them.
        """
        given = {**(arrays or {}), **named}
        reject_unknown(given, self._session.port_names, "input or output")
        merged = {**self._bound, **given}
        names = [spec.name for spec in self._session.input_info]
        if all(name in merged for name in names):
            self._settle(merged, given, [merged[name] for name in names])
        self._bound = merged
        return self

    def _settle(self, merged: Mapping[str, Any], given: Mapping[str, Any], inputs: list[Any]) -> None:
        """Binds to the program for these inputs, which may be another one than before."""
        label, executable, sizes = self._session.program_of(inputs)
        if self._graph_exec is not None and label == self._label:
            self._graph_exec.bind(given)
            return
        graph_exec = executable.attach(**sizes)
        graph_exec.bind(merged)
        self._label, self._graph_exec = label, graph_exec

    @property
    def graph_exec(self) -> GraphExec:
        """What runs. Raises InputMismatch if an input is not bound yet."""
        if self._graph_exec is None:
            names = [spec.name for spec in self._session.input_info if spec.name not in self._bound]
            raise InputMismatch(f"input '{names[0]}' is not bound; bind it first")
        return self._graph_exec

    def run(self, n: int = 1) -> None:
        """Runs the program `n` times on what is bound, and waits for the end."""
        self.start(n)
        self.wait()

    def start(self, n: int = 1) -> None:
        """As `run`, without waiting where the program runs on a device and no host memory is bound.

        Raises:
            InputMismatch: an input is not bound.
            SessionClosed: the session is closed.
        """
        self._session.check_open()
        self.graph_exec.replay(n)

    def wait(self) -> None:
        """Waits for what was started."""
        self.graph_exec.synchronize()

    def __getitem__(self, name: str) -> Any:
        """The memory of an input or output: what was bound, else memory of ours."""
        return self.graph_exec[name]

    def outputs(self) -> dict[str, Any]:
        """The memory of all outputs by name."""
        return {spec.name: self.graph_exec[spec.name] for spec in self._session.output_info}
