"""A compiled model as users hold it: the runtime's executable, with its texts and its ledger.

Texts of stages that are not kept import the compiler when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, overload

from aicf.backends.native import NativeCode
from aicf.compilation.record import Record, title_of
from aicf.compilation.writing import write_model
from aicf.errors import InputMismatch, PolicyError
from aicf.inspection.explain import (
    Decision,
    Explanation,
    ValueExplanation,
    explain_programs,
    explain_value,
    wrong_declarations,
)
from aicf.inspection.summary import Summary, summarize
from aicf.inspection.trace import Trace, traced
from aicf.inspection.value_names import ValueNames, value_names
from aicf.inspection.why_not import WhyNot, why_not
from aicf.runtime.capture_plan import ModulePlan
from aicf.runtime.device import split_device
from aicf.runtime.executable import Executable
from aicf.runtime.on_device.weights import DeviceWeights
from aicf.runtime.tensors import Array
from aicf.support.arguments import text_from


class SharedWeights(Protocol):
    """What the executables of one model have in common."""

    @property
    def on_device(self) -> DeviceWeights:
        """On the device."""
        ...

    def packed(self, plan: ModulePlan) -> Mapping[str, Array] | None:
        """All prepared weights of a plan, if they are on the host already."""
        ...


class CompiledModel(Executable):
    """What `aicf.compile` and `aicf.load` give: an `Executable` that can say where it comes from.

    Args:
        record: What it knows of its making.
        plan, native, weights, derived, on_device, ordinal: See `Executable`.
    """

    def __init__(
        self,
        record: Record,
        plan: ModulePlan,
        native: NativeCode,
        weights: Mapping[str, Array],
        derived: Mapping[str, Array] | None = None,
        on_device: DeviceWeights | None = None,
        ordinal: int = 0,
    ) -> None:
        texts = {"emit": record.emit} | ({} if record.logical is None else {"logical": record.logical})
        super().__init__(
            plan, native, weights, derived=derived, texts=texts, on_device=on_device, ordinal=ordinal
        )
        self.record = record
        if native.memory == "host":
            self._code.on_host()  # what this machine lacks is an error now; a device is asked for at the first use

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.record.name

    def to(self, device: str) -> CompiledModel:
        """The same program on another device of its kind, `cuda:1`, with the state that this one has now.

        Nothing is compiled, and the device is first used by the first call.

        Raises:
            PolicyError: the program is compiled for another kind of device.
            BackendUnavailable: this machine has no such device; at the first call.
        """
        backend, ordinal = split_device(device)
        if backend != self.plan.backend:
            own = f"{self.plan.backend}:{self.plan.arch}"
            raise PolicyError(
                f"device '{device}': the program is compiled for {own}; compile it for {backend}"
            )
        moved = self.placed(ordinal)
        if self.is_stateful:
            moved.set_state(self.state())
        return moved

    def placed(self, ordinal: int, on_device: DeviceWeights | None = None) -> CompiledModel:
        """The same program on device number `ordinal`, with its initial state.

        Args:
            on_device: What executables of the same model have there already; None shares with no other.
        """
        return CompiledModel(
            self.record, self.plan, self.native, self.weights, on_device=on_device, ordinal=ordinal
        )

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """The ledger: every decision in the order it was made."""
        return self.record.decisions

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an ONNX model declares of its values and is not so, a line for each; the inferred types hold."""
        return tuple(decision.because for decision in wrong_declarations(self.decisions))

    def ir(self, stage: str) -> str:
        """IR text: `logical`, `lowered` (primitive ops), `emit`, or the program after any pass by its name.

        Stages that are not kept are made again from the logical IR by the same passes.

        Raises:
            InputMismatch: there is no such stage.
            ArtifactError: the passes of this installation make another program than the one here.
        """
        text_from(stage, InputMismatch, "the IR stage")
        if stage in self._texts:
            return self._texts[stage]
        if self.record.logical is None:
            raise InputMismatch(f"there is no IR stage '{stage}': the model was an emit program; it has emit")
        from aicf.compilation.stages import stage_text

        return stage_text(self.record, stage)

    @overload
    def explain(self) -> Explanation: ...

    @overload
    def explain(self, value: str) -> ValueExplanation: ...

    @overload
    def explain(self, value: str | None) -> Explanation | ValueExplanation: ...

    def explain(self, value: str | None = None) -> Explanation | ValueExplanation:
        """The instruction tables, or for one value or op id: what it became, why, and what was rejected.

        Raises:
            InputMismatch: the program has no such value.
        """
        return explained(self.name, self.plan, self.decisions, value)

    def work_by_source(self) -> Mapping[str, Mapping[str, float]]:
        """How much of the work of each instruction each op of the model is that it stands for, in scalar operations;
        what profiles share times by. It reads the emit IR, which imports the compiler."""
        from aicf.inspection.attribution import work_by_source

        return work_by_source(self.record.emit)

    def trace(self, *inputs: Any, repeats: int = 3) -> Trace:
        """What ran when, as a file for Perfetto: see `Trace`. State is left alone.

        Args:
            inputs: In order.
            repeats: How often the program runs instruction by instruction, and then whole.

        Raises:
            InputMismatch: the inputs do not fit.
            CaptureError: the code runs whole programs only.
        """
        return traced(self, self.explain(), self.record.locations, inputs, repeats)

    def value_names(self) -> ValueNames:
        """What `explain` answers for: inputs, outputs, weights, ops of the model and instructions."""
        return value_names(self.plan)

    def why_not(self, one: str, other: str) -> WhyNot:
        """Why two ops are not one instruction, or in which they are, by their ids in the model or after lowering.

        Raises:
            InputMismatch: the program has no such op.
        """
        return why_not(self.plan, self.decisions, self.record.locations, one, other)

    def summary(self) -> Summary:
        """The program in a few lines: instructions, kernels, bytes, memory, expected time, and what is not fused."""
        return summarize(title_of(self.name, self.plan), self.plan, self.decisions)

    def save(self, path: str | Path, weights: bool = True, *, state: bool = False) -> None:
        """Writes the artifact, whole or not at all.

        Args:
            path: The `.aicf` file.
            weights: Whether it holds them; if not, `load` needs them.
            state: Whether what calls changed is in it as it is now; if not, as it was in the beginning.

        Raises:
            ArtifactError: the file cannot be written.
        """
        write_model(self, path, weights, state, {})


def explained(
    name: str, plan: ModulePlan, decisions: Sequence[Decision], value: str | None
) -> Explanation | ValueExplanation:
    """Of a program, or of one value of it. Raises InputMismatch: the program has no such value."""
    if value is not None:
        return explain_value(plan, decisions, value)
    return explain_programs(title_of(name, plan), plan, decisions)
