"""What a training step says beside its network and its optimizer: gradients, what the backward part reads, counters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from xdsl.dialects.builtin import I64, DenseArrayBase, FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import LogicalOp, Operand, StatedResultOp, TypeText
from aicf.dialects.logical_ops.properties import Properties, float_value, int_value, int_values, word_value
from aicf.dialects.traits import Composite, Internal, TrainingOnly
from aicf.dialects.types import AnyTensor, ElementType, TensorInfo, tensor, tensor_info

__all__ = [
    "ANNEALS",
    "SCHEDULES",
    "Anneal",
    "BiasCorrOp",
    "DetachOp",
    "GradientOp",
    "LearningRateOp",
    "OneCycleRateOp",
    "SaveOp",
    "Schedule",
    "StepIncOp",
    "StepRateOp",
]

Schedule = Literal["constant", "linear", "cosine"]
SCHEDULES: tuple[Schedule, ...] = ("constant", "linear", "cosine")
Anneal = Literal["linear", "cosine"]
ANNEALS: tuple[Anneal, ...] = ("linear", "cosine")


@irdl_op_definition
class GradientOp(LogicalOp):
    """The derivative of a loss, one float of rank 0, by a value: of its type.

    It comes after the loss. `differentiate` replaces all gradients of one loss at once; until then nothing runs them.
    """

    name = "logical.gradient"
    loss = operand_def()
    by = operand_def()
    traits = traits_def(TrainingOnly("differentiate"))

    def __init__(self, loss: Operand, by: Operand):
        super().__init__(loss, by)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The type of what it is the derivative by."""
        loss, by = (tensor_info(operand) for operand in operands)
        if loss.rank or not loss.element.is_float:
            raise VerifyException(
                f"the loss is {loss}; it is one float of rank 0, such as a reduce_mean over all axes"
            )
        if not by.element.is_float:
            raise VerifyException(f"{by} has no derivative by it; only floats have")
        return by.with_sizes(by.sizes)


class _Marked(LogicalOp, ABC):
    """The operand, of any type, with something said about it."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    operand = operand_def()

    def __init__(self, operand: Operand):
        super().__init__(operand)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        return info.with_sizes(info.sizes)


@irdl_op_definition
class SaveOp(_Marked):
    """The operand, marked as what the backward part of a training step reads of the forward part.

    `eliminate-saves` decides where it comes from: kept in memory, found in another value, or computed again.
    """

    name = "logical.save"
    traits = traits_def(TrainingOnly("eliminate-saves"), Internal())


@irdl_op_definition
class DetachOp(_Marked):
    """The operand, a constant to every gradient: nothing is passed back through it.

    It is gone when `differentiate` has run and composites are lowered.
    """

    name = "logical.detach"
    traits = traits_def(Composite())


def _check_step(type_: Attribute) -> TensorInfo:
    info = tensor_info(type_)
    if info.rank or info.element.name != "i64":
        raise VerifyException(f"the step is {info}; it is one i64 of rank 0")
    return info


@irdl_op_definition
class StepIncOp(LogicalOp):
    """The number of the next step: one more."""

    name = "logical.step_inc"
    TYPE_TEXT: ClassVar[TypeText] = TypeText.SAME
    step = operand_def()
    traits = traits_def(Composite())

    def __init__(self, step: Operand):
        super().__init__(step)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The step's type."""
        return _check_step(operands[0]).with_sizes([])


class _OfStep(StatedResultOp, ABC):
    """One float, f32 or f64 as stated, that follows from the number of the step."""

    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW
    step = operand_def()
    traits = traits_def(Composite())

    @classmethod
    @abstractmethod
    def check_options(cls, properties: Properties) -> None:
        """Raises VerifyException for options that have no meaning."""

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """One f32 or f64."""
        cls.check_options(properties)
        _check_step(operands[0])
        info = tensor_info(result)
        if info.rank or info.element.name not in ("f32", "f64"):
            raise VerifyException(f"the result is {info}; it is one f32 or f64 of rank 0")


@irdl_op_definition
class BiasCorrOp(_OfStep):
    """``1 - beta ** step``: what is missing of a running mean that began with 0."""

    name = "logical.bias_corr"
    beta = prop_def(FloatAttr)

    def __init__(self, step: Operand, beta: float, element: ElementType | str = "f32"):
        super().__init__(step, result=tensor([], element), beta=beta)

    @classmethod
    def check_options(cls, properties: Properties) -> None:
        if not 0.0 <= (beta := float_value(properties.get("beta"))) < 1.0:
            raise VerifyException(f"beta is {beta}; it is 0 or more and below 1")


@irdl_op_definition
class LearningRateOp(_OfStep):
    """The learning rate of a step, counted from 1: up to ``base`` in ``warmup`` steps, then down to ``final``.

    ``schedule`` says how, by step ``total``: ``constant`` stays, ``linear`` goes by a line, ``cosine`` by half a wave
    (Loshchilov and Hutter, SGDR, 2017). Without a warm-up the first step has ``base``.
    """

    name = "logical.learning_rate"
    schedule = prop_def(StringAttr)
    base = prop_def(FloatAttr)
    warmup = prop_def(IntegerAttr[I64], default_value=IntegerAttr(0, i64))
    total = prop_def(IntegerAttr[I64], default_value=IntegerAttr(0, i64))
    final = prop_def(FloatAttr, default_value=FloatAttr(0.0, f64))

    def __init__(
        self,
        step: Operand,
        schedule: Schedule,
        base: float,
        warmup: int = 0,
        total: int = 0,
        final: float = 0.0,
        element: ElementType | str = "f32",
    ):
        super().__init__(
            step,
            result=tensor([], element),
            schedule=schedule,
            base=base,
            warmup=warmup,
            total=total,
            final=final,
        )

    @classmethod
    def check_options(cls, properties: Properties) -> None:
        schedule = word_value("schedule", properties, SCHEDULES)
        _check_rates(properties, "base", "final")
        warmup, total = (int_value(properties.get(name)) for name in ("warmup", "total"))
        if warmup < 0:
            raise VerifyException(f"warmup is {warmup}; it is a number of steps, 0 or more")
        if schedule != "constant" and total <= warmup:
            raise VerifyException(f"total is {total}; it is more than the {warmup} steps of warmup")


def _check_rates(properties: Properties, *names: str) -> None:
    for name in names:
        if not 0.0 <= (rate := float_value(properties.get(name))) < float("inf"):
            raise VerifyException(f"{name} is {rate}; it is 0 or more")


@irdl_op_definition
class StepRateOp(_OfStep):
    """The learning rate of a step, counted from 1: ``base``, and times ``factor`` after certain steps.

    That is after every ``period`` steps, or after each number of steps in ``milestones``. Both count from the end of
    ``warmup`` steps, in which the rate rises by a line.
    """

    name = "logical.step_rate"
    base = prop_def(FloatAttr)
    factor = prop_def(FloatAttr)
    warmup = prop_def(IntegerAttr[I64], default_value=IntegerAttr(0, i64))
    period = prop_def(IntegerAttr[I64], default_value=IntegerAttr(0, i64))
    milestones = prop_def(DenseArrayBase[I64], default_value=DenseArrayBase[I64].from_list(i64, ()))

    def __init__(
        self,
        step: Operand,
        base: float,
        factor: float,
        warmup: int = 0,
        period: int = 0,
        milestones: Sequence[int] = (),
        element: ElementType | str = "f32",
    ):
        super().__init__(
            step,
            result=tensor([], element),
            base=base,
            factor=factor,
            warmup=warmup,
            period=period,
            milestones=milestones,
        )

    @classmethod
    def check_options(cls, properties: Properties) -> None:
        _check_rates(properties, "base")
        if not 0.0 < (factor := float_value(properties.get("factor"))) < float("inf"):
            raise VerifyException(f"factor is {factor}; it is more than 0")
        warmup, period = (int_value(properties.get(name)) for name in ("warmup", "period"))
        if warmup < 0:
            raise VerifyException(f"warmup is {warmup}; it is a number of steps, 0 or more")
        milestones = int_values(properties.get("milestones"))
        if period < 0 or bool(period) == bool(milestones):
            raise VerifyException(
                f"period is {period} and milestones are {list(milestones)}; give one of them: 1 or more, or a list"
            )
        if any(milestone < 0 for milestone in milestones) or list(milestones) != sorted(milestones):
            raise VerifyException(
                f"milestones are {list(milestones)}; they are numbers of steps in rising order"
            )


@irdl_op_definition
class OneCycleRateOp(_OfStep):
    """The learning rate of a step, counted from 1: from ``base`` up to ``peak``, then down to ``final`` at ``total``.

    The peak is after ``rise`` steps, which need be no whole number. ``anneal`` says how it goes both ways, by a line or
    half a wave. Smith and Topin, Super-Convergence, 2019.
    """

    name = "logical.one_cycle_rate"
    anneal = prop_def(StringAttr)
    base = prop_def(FloatAttr)
    peak = prop_def(FloatAttr)
    final = prop_def(FloatAttr)
    rise = prop_def(FloatAttr)
    total = prop_def(IntegerAttr[I64])

    def __init__(
        self,
        step: Operand,
        anneal: Anneal,
        base: float,
        peak: float,
        final: float,
        rise: float,
        total: int,
        element: ElementType | str = "f32",
    ):
        super().__init__(
            step,
            result=tensor([], element),
            anneal=anneal,
            base=base,
            peak=peak,
            final=final,
            rise=rise,
            total=total,
        )

    @classmethod
    def check_options(cls, properties: Properties) -> None:
        word_value("anneal", properties, ANNEALS)
        _check_rates(properties, "base", "peak", "final")
        rise, total = float_value(properties.get("rise")), int_value(properties.get("total"))
        if not 0.0 < rise < total - 1:
            raise VerifyException(
                f"rise is {rise} of {total} steps; it is more than 0, and less than total - 1: make total larger"
            )
