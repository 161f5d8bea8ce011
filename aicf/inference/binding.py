"""Inputs and outputs of a session on memory of the caller: bound once, run many times, nothing copied on the host.

A binding follows the shapes of what is bound: other shapes are another program, which is found or made as for a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aicf.errors import InputMismatch
from aicf.inference.programs import Program
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.ports import reject_unknown
from aicf.support.arguments import mapping_from

if TYPE_CHECKING:
    from aicf.inference.program_session import ProgramSession


class Binding:
    """Memory for the inputs and outputs of a session. For one thread at a time.

    NumPy arrays, anything with DLPack and, on a GPU, with `__cuda_array_interface__` are read and written where they
    are. Outputs that are not bound get memory of ours, which every run writes anew.

    Args:
        session: Whose programs run.
    """

    def __init__(self, session: ProgramSession) -> None:
        self._session = session
        self._bound: dict[str, Any] = {}
        self._program: Program | None = None
        self._graph_exec: GraphExec | None = None

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> Binding:
        """Binds inputs and outputs by name, in place of what was bound under these names; gives itself.

        Raises:
            InputMismatch: a name is unknown, or memory does not fit; nothing is bound then. What can be told only with
                all inputs is told by the bind that completes them.
        """
        by_name: Mapping[str, Any] = (
            {} if arrays is None else mapping_from(arrays, InputMismatch, "what is bound")
        )
        given = {**by_name, **named}
        reject_unknown(given, self._session.port_names, "input or output")
        merged = {**self._bound, **given}
        if not self._missing(merged):
            self._settle(merged, given)
        self._bound = merged
        return self

    def _missing(self, bound: Mapping[str, Any]) -> list[str]:
        """The inputs that are not bound, and whose values are not known either."""
        names = [spec.name for spec in self._session.input_info]
        return [name for name in names if name not in bound and name not in self._session.known_values]

    def _settle(self, merged: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Binds to the program for the inputs that are bound, which may be another one than before."""
        names = {spec.name for spec in self._session.input_info}
        program = self._session.program_of({name: merged[name] for name in merged if name in names})
        others = names - set(program.inputs)
        if self._graph_exec is not None and program is self._program:
            self._graph_exec.bind({name: given[name] for name in given if name not in others})
            return
        graph_exec = program.executable.attach(**program.sizes)
        graph_exec.bind({name: merged[name] for name in merged if name not in others})
        self._program, self._graph_exec = program, graph_exec

    @property
    def graph_exec(self) -> GraphExec:
        """What runs. Raises InputMismatch if an input is not bound yet."""
        if self._graph_exec is None:
            name = self._missing(self._bound)[0]
            raise InputMismatch(f"input '{name}' is not bound; bind it first")
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
        """The memory of all outputs by name.

        Of one whose number of rows follows from the data it is all rows that there could be, and another output,
        called `<name>.count`, says how many of them are there.
        """
        names = [spec.name for spec in self._session.output_info]
        program = self._program
        counts = () if program is None else tuple(name for name in program.outputs if name not in names)
        return {name: self.graph_exec[name] for name in (*names, *counts)}
