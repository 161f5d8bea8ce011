"""Random training steps: a random forward part, a loss of it, gradients of what reaches it, and steps of optimizers.

Everything follows from the seed. A step whose values are wild, also in its backward part, is dropped for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR, UPDATES_ATTR, LogicalOp
from aicf.dialects.types import tensor, tensor_info
from aicf.errors import InvalidIR
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.training.differentiate import DifferentiatePass
from tests.support.optimizer_programs import CASES, Case
from tests.support.random_graphs import RandomProgram, grown
from tests.support.random_steps import STEPS
from tests.support.random_steps.generator import Generator

Array = NDArray

CLASSES = 3
TRIES = 50


def random_training_program(seed: int, *, float_type: str = "f32", steps: int = 5) -> RandomProgram:
    """A step with a forward part of about ``steps`` ops and a linear layer.

    Args:
        seed: Decides everything.
        float_type: f32 or f64, the element type of all floats.
        steps: Ops to try to add before the layer.
    """
    for number in range(TRIES):
        g = grown(seed * TRIES + number, float_type, ("i32", "i64"), steps, STEPS)
        try:
            loss = _loss(g, _layer(g))
        except VerifyException:
            continue  # the values are not tame
        return _Step(g, loss).program()
    raise ValueError(f"no tame step of {TRIES} with seed {seed}")


def _layer(g: Generator) -> SSAValue:
    x = g.float_value(min_rank=1)
    weight = g.argument((CLASSES, tensor_info(x.type).shape[-1]), "param")
    return g.require(logical.LinearOp(x, weight, g.argument((CLASSES,), "param")))


def _loss(g: Generator, x: SSAValue) -> SSAValue:
    shape, reduction = tensor_info(x.type).shape, g.choice(("mean", "sum"))
    target = g.argument(shape, "input")
    makers: tuple[Callable[[], LogicalOp], ...] = (
        lambda: logical.MseLossOp(x, target, reduction),
        lambda: logical.HuberLossOp(x, target, reduction),
        lambda: logical.BceWithLogitsOp(x, g.require(logical.SigmoidOp(target)), reduction),
        lambda: logical.CrossEntropyOp(x, _labels(g, shape[:-1]), len(shape) - 1, reduction),
        lambda: logical.ReduceMeanOp(g.require(logical.MulOp(x, target)), range(len(shape))),
    )
    return g.require(g.choice(makers)())


def _labels(g: Generator, shape: Sequence[int]) -> SSAValue:
    whole = g.argument(shape, "input", "i64")
    return g.require(logical.ModOp(whole, g.require(logical.ConstantOp(CLASSES, whole.type))))


class _Step:
    """The step after a loss under construction."""

    def __init__(self, g: Generator, loss: SSAValue) -> None:
        self.g = g
        self.loss = loss
        self.results: list[SSAValue] = [loss]
        self.entries: list[dict[str, Attribute]] = [{NAME_ATTR: StringAttr("loss")}]

    def program(self) -> RandomProgram:
        """The finished step."""
        self._train_inputs()
        parameters = [argument for argument in self._parameters() if self._is_reached(argument)]
        now, rate = self._counters()
        gradients = [self._add(logical.GradientOp(self.loss, parameter)) for parameter in parameters]
        if self.g.chance(0.4):
            gradients = self._clipped(gradients)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            self._optimize(self.g.choice(tuple(CASES.values())), parameter, gradient, rate, now)
        return RandomProgram(self._module(), self.g.inputs)

    def _train_inputs(self) -> None:
        """Makes parameters of some inputs, where most ways begin."""
        interface = self.g.interface
        for index, argument in enumerate(self.g.block.args):
            if tensor_info(argument.type).element.is_float and self.g.chance(0.5):
                interface[index] = DictionaryAttr({**interface[index].data, ROLE_ATTR: StringAttr("param")})

    def _parameters(self) -> Iterator[BlockArgument]:
        g = self.g
        for argument, entry in zip(g.block.args, g.interface, strict=True):
            if entry.data[ROLE_ATTR] == StringAttr("param") and tensor_info(argument.type).element.is_float:
                yield argument

    def _is_reached(self, parameter: BlockArgument) -> bool:
        """Whether the loss passes anything back to it."""
        types = [argument.type for argument in self.g.block.args]
        copy, values = Block(arg_types=types), {}
        values.update(zip(self.g.block.args, copy.args, strict=True))
        copy.add_ops([op.clone(values) for op in self.g.block.ops])
        copy.add_op(gradient := logical.GradientOp(values[self.loss], values[parameter]))
        copy.add_op(ReturnOp(gradient))
        module = ModuleOp([FuncOp("reached", (types, [parameter.type]), Region(copy))])
        AssignIdsPass().apply(Context(), module)
        try:
            DifferentiatePass().apply(Context(), module)
        except InvalidIR:
            return False
        return True

    def _add(self, op: LogicalOp) -> SSAValue:
        self.g.block.add_op(op)
        return op.result

    def _counters(self) -> tuple[SSAValue, SSAValue]:
        # Not the first step, in which momentum takes its buffer for zeros: states are drawn.
        step = self._given("step", (), "meta", "i64", np.array(self.g.random.integers(1, 5)))
        now = self._add(logical.StepIncOp(step))
        schedule = self.g.choice(logical.SCHEDULES)
        rate = logical.LearningRateOp(now, schedule, 0.125, 2, 8, 0.03125, self.g.float_type)
        self._update("step", now)
        return now, self._add(rate)

    def _given(self, name: str, shape: Sequence[int], role: str, element: str, array: Array) -> SSAValue:
        """An argument of values made elsewhere."""
        g = self.g
        value = g.block.insert_arg(tensor(shape, element), len(g.block.args))
        g.interface.append(DictionaryAttr({NAME_ATTR: StringAttr(name), ROLE_ATTR: StringAttr(role)}))
        g.inputs[name] = array.astype(tensor_info(value.type).element.dtype)
        return value

    def _update(self, name: str, value: SSAValue) -> None:
        self.results.append(value)
        self.entries.append({UPDATES_ATTR: StringAttr(name)})

    def _clipped(self, gradients: Sequence[SSAValue]) -> list[SSAValue]:
        factor = self._add(logical.ClipFactorOp(self._add(logical.GlobalNormOp(gradients)), 0.5))
        scaled: list[SSAValue] = []
        for gradient in gradients:
            spread = self._add(logical.BroadcastOp(factor, (), tensor_info(gradient.type).shape))
            scaled.append(self._add(logical.MulOp(gradient, spread)))
        return scaled

    def _optimize(
        self, case: Case, parameter: BlockArgument, gradient: SSAValue, rate: SSAValue, now: SSAValue
    ) -> None:
        """States are drawn as those of a later step: means of squares are positive."""
        g, shape = self.g, tensor_info(parameter.type).shape
        name = g.interface[parameter.index].data[NAME_ATTR]
        assert isinstance(name, StringAttr)
        names = [f"{name.data}.state{number}" for number in range(case.states)]
        states = [
            self._given(each, shape, "state", g.float_type, g.random.uniform(0.25, 1.0, shape))
            for each in names
        ]
        op = case.op(parameter, gradient, rate, now, states, **case.options)
        g.block.add_op(op)
        for target, value in zip((name.data, *names), op.results, strict=True):
            self._update(target, value)

    def _module(self) -> ModuleOp:
        g = self.g
        g.block.add_op(ReturnOp(*self.results))
        types = [argument.type for argument in g.block.args], [value.type for value in self.results]
        attrs = ArrayAttr(g.interface), ArrayAttr(DictionaryAttr(entry) for entry in self.entries)
        return ModuleOp([FuncOp("step", types, Region(g.block), arg_attrs=attrs[0], res_attrs=attrs[1])])
