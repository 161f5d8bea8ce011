"""Inputs and outputs of an external session on memory of the caller; the counterpart of AICF's own `Binding`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aicf.engines.external.adapter import BoundRun
from aicf.engines.external.errors import engine_errors
from aicf.errors import InputMismatch
from aicf.runtime.executable import TensorSpec
from aicf.runtime.ports import reject_unknown
from aicf.runtime.tensors import Array
from aicf.support.arguments import mapping_from

if TYPE_CHECKING:
    from aicf.engines.external.session import ExternalSession


class ExternalBinding:
    """See `SessionBinding`. Memory is of the host; inputs and outputs are row-major.

    Args:
        session: Whose plans run.
    """

    def __init__(self, session: ExternalSession) -> None:
        self._session = session
        self._bound: dict[str, Any] = {}
        self._run: BoundRun | None = None

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> ExternalBinding:
        """See `SessionBinding`."""
        by_name: Mapping[str, Any] = (
            {} if arrays is None else mapping_from(arrays, InputMismatch, "what is bound")
        )
        interface = self._session.interface
        reject_unknown(
            {**by_name, **named}, [*interface.input_names, *interface.output_names], "input or output"
        )
        merged = {**self._bound, **by_name, **named}
        wanted = [spec for spec in interface.outputs if spec.name in merged]
        outputs = {spec.name: self._output(merged[spec.name], spec) for spec in wanted}
        if all(name in merged for name in interface.input_names):
            inputs = {name: merged[name] for name in interface.input_names}
            self._run = self._session.bound_run(inputs, outputs)
        self._bound = merged
        return self

    def _output(self, value: object, spec: TensorSpec) -> Array:
        array = self._session.writable(spec, value)
        if not array.flags.c_contiguous:
            raise InputMismatch(
                f"output '{spec.name}' is not row-major, zero-copy needs that; use np.ascontiguousarray"
            )
        return array

    def _complete(self) -> BoundRun:
        if self._run is None:
            name = next(name for name in self._session.interface.input_names if name not in self._bound)
            raise InputMismatch(f"input '{name}' is not bound; bind it first")
        return self._run

    def run(self, n: int = 1) -> None:
        """Runs `n` times on what is bound, and waits for the end."""
        self._session.check_open()
        bound = self._complete()
        with engine_errors(self._session.engine, "ran the model"):
            for _ in range(n):
                bound.run()

    def start(self, n: int = 1) -> None:
        """As `run`: an external engine is waited for."""
        self.run(n)

    def wait(self) -> None:
        """Returns at once: `start` has waited."""

    def __getitem__(self, name: str) -> Any:
        """See `SessionBinding`."""
        return self._bound[name] if name in self._bound else self.outputs()[name]

    def outputs(self) -> dict[str, Any]:
        """See `SessionBinding`; outputs that are not bound are there after the first run."""
        found = self._complete().outputs()
        return {name: found[name] for name in self._session.interface.output_names}
