"""`train_step`: a module, a loss and an optimizer of PyTorch as one program, on PyTorch's memory.

The forward part is traced by `torch.export` and differentiated by AICF, or traced with its gradients by AOTAutograd;
`gradients.py` decides. Parameters, buffers and optimizer states stay PyTorch's tensors and are updated in place:
`state_dict()`, checkpoints and weight averaging keep working, and a scheduler changes rates without a new program.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves

from aicf.compilation.compiled import CompiledModel
from aicf.errors import InvalidIR
from aicf.pytorch.options import StepOptions, in_force, read_step_options
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.streams import is_capturing
from aicf.pytorch.training.batch_sizes import ForwardParts
from aicf.pytorch.training.checks import (
    check_batch,
    check_captured,
    check_counts,
    check_model,
    check_trained,
    in_one_line,
    refused_assignments,
    restored,
)
from aicf.pytorch.training.gradients import Trace, compile_with_gradients, note_in_ledger
from aicf.pytorch.training.module_state import ModuleState, autocast_types, step_tensors
from aicf.pytorch.training.optimizers import Group, as_pytorch, groups_of, state_of
from aicf.pytorch.training.program import StepProgram
from aicf.pytorch.training.report import StepProgramReport, StepReport
from aicf.pytorch.training.scheduled import form_of
from aicf.pytorch.training.step_counts import StepCounts
from aicf.training.optimizers import Optimizer
from aicf.training.schedules import InProgram

LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
LOGGER = logging.getLogger("aicf.pytorch")
_Compiled: TypeAlias = tuple[StepProgram, StepProgramReport]


class TrainStep:
    """One training step, the result of `train_step`.

    Calling it with a batch updates the module's parameters and buffers and the optimizer's states in place, and returns
    the loss, a tensor of rank 0, without waiting for the device. Calls of several threads are serialized. A copy, also
    through `pickle`, has copies of the module and the optimizer, and compiles its own programs.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction | None,
        optimizer: torch.optim.Optimizer,
        options: StepOptions,
        schedules: Sequence[InProgram | None] = (),
    ) -> None:
        self.model, self.optimizer, self._loss, self._options = model, optimizer, loss, options
        self._schedules = schedules
        self._traced = _WithLoss(model, loss)
        self._state = ModuleState(self._traced)
        self._programs: dict[Any, StepProgram] = {}
        self._reports: dict[int, StepProgramReport] = {}
        self._forward_parts = ForwardParts()
        self._lock = threading.RLock()
        self._seeds = Seeds(options.seed, type(model).__name__)
        self._counts = StepCounts.of(optimizer)
        self._generation = self._counts.generation
        self._updates: Sequence[Optimizer] = ()
        self._scheduled = set[int]()

    @property
    def steps(self) -> int:
        """The steps that the optimizer has made."""
        return self._counts.steps

    def __call__(self, *batch: Any, **named: Any) -> Tensor:
        """One step.

        Args:
            batch: The module's positional arguments, then the target if there is a loss function.
            named: The module's keyword arguments.
        """
        values, spec = tree_flatten((batch, named))
        check_batch(values)
        with self._lock, torch.inference_mode(False):
            counts = self._counts
            counts.call_hooks(self.optimizer, is_before=True)
            self._state.refresh()
            groups = self._groups()
            signature = (str(spec), *map(_signature, values), *(group.key for group in groups))
            program = self._programs.get(self._key(signature))
            is_current = program is not None and program.trained is counts.trained
            is_captured = bool(groups) and is_capturing(groups[0].parameters[0].device)
            if is_captured:
                check_captured(groups, is_current)
            if program is None or not is_current:
                program = self._switch(signature, program, lambda: self._compile(batch, named, groups))
            step = 0 if is_captured else counts.steps + 1
            loss = program.run(values, groups, counts.tensor(program.device), step)
            counts.add_step(is_captured=is_captured)
            vars(self.optimizer)["_opt_called"] = True  # schedules warn where it is not
            counts.call_hooks(self.optimizer, is_before=False)
            return loss

    def _key(self, signature: tuple[object, ...]) -> tuple[object, ...]:
        """What a program is valid for: a signature of the batch and the optimizer, and the state of the model."""
        return (*signature, *autocast_types(), self._state.number)

    def _groups(self) -> list[Group]:
        """The optimizer's groups. Those whose options have changed since the last step are scheduled from now on."""
        # After a checkpoint, programs refer to states that the optimizer no longer has.
        if self._generation != self._counts.generation:
            self._programs.clear()
            self._reports.clear()
            self._generation = self._counts.generation
        groups = self._groups_now()
        updates = [group.update for group in groups]
        changed = {
            index
            for index, (before, update) in enumerate(zip(self._updates, updates, strict=False))
            if before != update and form_of(before) == form_of(update)
        }
        self._updates = updates
        if not changed <= self._scheduled:
            self._scheduled |= changed
            groups = self._groups_now()
        return groups

    def _groups_now(self) -> list[Group]:
        groups = groups_of(self.optimizer, self._state.names, self._scheduled)
        if not self._schedules:
            return groups
        return [
            replace(group, schedule=schedule) for group, schedule in zip(groups, self._schedules, strict=True)
        ]

    def _switch(
        self,
        signature: tuple[object, ...],
        program: StepProgram | None,
        compile_program: Callable[[], _Compiled],
    ) -> StepProgram:
        """Makes a program the current one, compiling it if need be, and evicts the least recently used one."""
        before = self._state.modes
        with restored(self.optimizer):
            self._counts.write()
            program, report = (program, self._reports[id(program)]) if program else compile_program()
            check_counts(self.optimizer, program.trained, self.steps)
        self._state.refresh()
        if before != self._state.modes:
            LOGGER.warning(
                "%s changes attributes of modules when it runs; a step does so only when it is traced",
                type(self.model).__name__,
            )
        key = self._key(signature)
        self._reports[id(program)] = report
        self._programs.pop(key, None)
        self._programs[key] = program
        if len(self._programs) > self._options.max_programs:
            oldest = next(iter(self._programs))
            del self._reports[id(self._programs.pop(oldest))]
        self._counts.trained = program.trained
        return program

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            arguments = (self.model, self._loss, self.optimizer, self._options, self._schedules)
            return {"arguments": arguments}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        TrainStep.__init__(self, *state["arguments"])

    @property
    def executables(self) -> list[CompiledModel]:
        """The programs in memory, one for each signature of a batch, with `explain()`."""
        return [program.executable for program in self._programs.values()]

    def report(self) -> StepReport:
        """The programs, who computed their gradients, and why."""
        return StepReport(type(self.model).__name__, self.steps, tuple(self._reports.values()))

    def _compile(self, batch: tuple[Any, ...], named: dict[str, Any], groups: Sequence[Group]) -> _Compiled:
        start = time.perf_counter()
        check_model(self._traced)
        options = in_force(self._options)
        parameters = [
            (name, parameter, group)
            for group in groups
            for name, parameter in zip(group.names, group.parameters, strict=True)
        ]

        def compile_traced(trace: Trace) -> StepProgram:
            names = {name for name, _, _ in parameters}
            with refused_assignments(self.model):
                model = trace(self._traced, batch, named, type(self.model).__name__, names)
            check_trained(groups, [model.tensors[each] for each in model.trained])
            trained = {id(model.tensors[each]) for each in model.trained}
            states = {
                name: state_of(self.optimizer, each, group)
                for name, each, group in parameters
                if id(each) in trained
            }
            return StepProgram(model, groups, states, options, self._seeds)

        def compile_or_restore(trace: Trace) -> StepProgram:
            with restored(self.optimizer):  # the other source of gradients may need fewer states
                return compile_traced(trace)

        with in_one_line():
            program, choice = compile_with_gradients(
                self._options.gradients, compile_or_restore, self._forward_parts
            )
        note_in_ledger(program.executable, choice)
        seconds = time.perf_counter() - start
        report = StepProgramReport(
            _describe_batch(batch, named), choice, seconds, program.origin, program.executable
        )
        LOGGER.info("%s", report)
        return program, report


def train_step(
    model: nn.Module,
    loss: LossFunction | None,
    optimizer: torch.optim.Optimizer | Optimizer,
    *,
    options: Mapping[str, Any] | None = None,
) -> TrainStep:
    """Compiles a module, its loss, their gradients and the optimizer to one program.

    Args:
        model: In the mode in which it is to be trained.
        loss: Takes the module's output and the target, as `torch.nn.functional.cross_entropy` does; None for a module
            that returns the loss, or an object with an attribute `loss`.
        optimizer: `torch.optim.SGD`, `Adam` or `AdamW`, on parameters of the module; or one of `aicf.optimizers`, for
            all of them. The step has it as `optimizer`, as one of `torch.optim`.
        options: See `aicf.pytorch.StepOptions`.

    Raises:
        InvalidIR: the optimizer is of another class or has an option without a counterpart.
        PolicyError: an option is not legal.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    read = read_step_options(options)
    if isinstance(optimizer, Optimizer):
        trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        made, schedules = as_pytorch(optimizer, trained)
        return TrainStep(model, loss, made, read, schedules)
    groups_of(optimizer, {id(each): name for name, each in step_tensors(_WithLoss(model, loss)).items()})
    return TrainStep(model, loss, optimizer, read)


class _WithLoss(nn.Module):
    """A module that returns the loss of another module."""

    def __init__(self, model: nn.Module, loss: LossFunction | None) -> None:
        super().__init__()
        self.model = model
        self.loss_function = loss
        self.training = model.training

    def forward(self, *batch: Any, **named: Any) -> Tensor:
        """The loss of a batch."""
        if self.loss_function is not None:
            if not batch:
                raise InvalidIR("the batch has no target; give it last, as in step(x, target)")
            *inputs, target = batch
            return self.loss_function(self.model(*inputs, **named), target)
        result = self.model(*batch, **named)
        loss = result if isinstance(result, Tensor) else getattr(result, "loss", None)
        if not isinstance(loss, Tensor):
            raise InvalidIR(
                f"the module returns a {type(result).__name__} without an attribute loss; give train_step a loss "
                "function of what it returns"
            )
        return loss


def _signature(value: Any) -> object:
    """The facts about a value of a batch that a program is valid for."""
    if isinstance(value, Tensor):
        return (tuple(value.shape), value.dtype, value.device, value.stride())
    return (type(cast(object, value)), value)  # as 1, 1.0 and True are equal


def _describe_batch(batch: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """The element types and shapes of the tensors of a batch."""
    tensors = [value for value in tree_leaves((batch, dict(named))) if isinstance(value, Tensor)]
    return ", ".join(f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in tensors)
