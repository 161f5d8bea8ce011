"""Steps of optimizers: a parameter and its states after one step, as new values.

They are the only ops with more than one result, and gone before anything is fused. Formulas, names and defaults are
those of ``torch.optim``. The learning rate and the number of the step are operands, for they change from step to step;
what stays the same is an attribute. ``lower-optimizers`` writes them as arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, UnitAttr, f64
from xdsl.ir import Attribute
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import LogicalOp, Operand, plural, require_float
from aicf.dialects.logical_ops.properties import Properties, float_value
from aicf.dialects.traits import TrainingOnly
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

_NUMBERS = ("momentum", "dampening", "weight_decay", "beta1", "beta2", "epsilon")

__all__ = ["AdamOp", "AdamwOp", "OptimizerOp", "SgdOp"]


class OptimizerOp(LogicalOp, ABC):
    """The parameter after a step, then its states after it.

    Gradient and states have the parameter's type, f32 or f64: what computes in f16 or bf16 casts the parameter where it
    reads it. The learning rate is one number of that type, the step's number an i64 that is 1 for the first.
    """

    HAS_MORE_RESULTS: ClassVar[bool] = True

    parameter = operand_def()
    gradient = operand_def()
    learning_rate = operand_def()
    step = operand_def()
    states = var_operand_def()
    result = result_def()  # again, so that it comes before the states
    new_states = var_result_def()
    traits = traits_def(TrainingOnly("lower-optimizers"))

    @classmethod
    @abstractmethod
    def state_names(cls, properties: Properties) -> Sequence[str]:
        """The states that the step keeps, by PyTorch's names, in the order of the operands."""

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The parameter's type."""
        parameter, gradient, rate, step = (tensor_info(operand) for operand in operands[:4])
        require_float(parameter)
        if parameter.element.bytes == 2:
            raise VerifyException(
                f"the parameter is {parameter}; keep it in f32 and cast it where it is used"
            )
        _check_like("gradient", gradient, parameter)
        if rate.rank or rate.element != parameter.element:
            raise VerifyException(
                f"the learning rate is {rate}; it is one {parameter.element.name} of rank 0"
            )
        if step.rank or step.element.name != "i64":
            raise VerifyException(f"the step is {step}; it is one i64 of rank 0")
        names, given = cls.state_names(properties), operands[4:]
        if len(given) != len(names):
            wanted = ", ".join(names) or "none"
            raise VerifyException(f"{plural(len(given), 'state')} given; these options have: {wanted}")
        for name, state in zip(names, given, strict=True):
            _check_like(name, tensor_info(state), parameter)
        return parameter.with_sizes(parameter.sizes)

    @classmethod
    def infer_more(cls, operands: Sequence[Attribute], properties: Properties) -> Sequence[Attribute]:
        """The types of the states."""
        return operands[4:]

    @classmethod
    def check_options(cls, properties: Properties, *below_one: str) -> None:
        """Refuses negative options, and those `below_one` that are 1 or more."""
        for name, attr in properties.items():
            if name in _NUMBERS and not 0.0 <= (number := float_value(attr)) < float("inf"):
                raise VerifyException(f"{name} is {number}; it is 0 or more")
        for name in below_one:
            if name in properties and (number := float_value(properties[name])) >= 1.0:
                raise VerifyException(f"{name} is {number}; it is below 1")


def _check_like(name: str, info: TensorInfo, parameter: TensorInfo) -> None:
    if info != parameter:
        raise VerifyException(f"{name} is {info}, the parameter {parameter}; their types are equal")


@irdl_op_definition
class SgdOp(OptimizerOp):
    """``w - lr * d``; d is the gradient, with ``momentum`` its running sum ``b = momentum * b + (1 - dampening) * d``.

    The first step takes b = d. ``nesterov`` goes by ``d + momentum * b`` (Sutskever et al., 2013). ``weight_decay``
    times the parameter is added to the gradient first.
    """

    name = "logical.sgd"
    momentum = prop_def(FloatAttr, default_value=FloatAttr(0.0, f64))
    dampening = prop_def(FloatAttr, default_value=FloatAttr(0.0, f64))
    weight_decay = prop_def(FloatAttr, default_value=FloatAttr(0.0, f64))
    nesterov = opt_prop_def(UnitAttr)

    def __init__(
        self,
        parameter: Operand,
        gradient: Operand,
        learning_rate: Operand,
        step: Operand,
        states: Sequence[Operand] = (),
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
    ):
        super().__init__(
            parameter,
            gradient,
            learning_rate,
            step,
            states,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
        )

    @classmethod
    def state_names(cls, properties: Properties) -> Sequence[str]:
        """The momentum's buffer."""
        return ["momentum_buffer"] if float_value(properties["momentum"]) else []

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The parameter's type."""
        cls.check_options(properties)
        momentum, dampening = (float_value(properties[name]) for name in ("momentum", "dampening"))
        if "nesterov" in properties and (not momentum or dampening):
            raise VerifyException(
                f"nesterov with momentum {momentum} and dampening {dampening}; it wants a momentum and no dampening"
            )
        return super().infer(operands, properties)


class _MomentsOp(OptimizerOp, ABC):
    """Goes by running means of the gradient and of its square, corrected for their start at 0."""

    beta1 = prop_def(FloatAttr, default_value=FloatAttr(0.9, f64))
    beta2 = prop_def(FloatAttr, default_value=FloatAttr(0.999, f64))
    epsilon = prop_def(FloatAttr, default_value=FloatAttr(1e-8, f64))
    weight_decay = prop_def(FloatAttr, default_value=FloatAttr(0.0, f64))
    amsgrad = opt_prop_def(UnitAttr)

    def __init__(
        self,
        parameter: Operand,
        gradient: Operand,
        learning_rate: Operand,
        step: Operand,
        states: Sequence[Operand],
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        amsgrad: bool = False,
    ):
        super().__init__(
            parameter,
            gradient,
            learning_rate,
            step,
            states,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            amsgrad=amsgrad,
        )

    @classmethod
    def state_names(cls, properties: Properties) -> Sequence[str]:
        """Both running means; with ``amsgrad`` the largest second one so far."""
        return ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if "amsgrad" in properties else [])]

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The parameter's type."""
        cls.check_options(properties, "beta1", "beta2")
        return super().infer(operands, properties)


@irdl_op_definition
class AdamOp(_MomentsOp):
    """``w - lr * m' / (sqrt(v') + epsilon)``, m and v running means of the gradient and its square.

    ``m = beta1 * m + (1 - beta1) * g``, ``m' = m / (1 - beta1 ** step)``, v with beta2 and the square of g.
    ``weight_decay`` times the parameter is added to the gradient first; ``amsgrad`` takes the largest v so far. Kingma
    and Ba, 2015; Reddi, Kale and Kumar, 2018.
    """

    name = "logical.adam"


@irdl_op_definition
class AdamwOp(_MomentsOp):
    """``logical.adam`` of a parameter that is multiplied by ``1 - lr * weight_decay`` first.

    Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019.
    """

    name = "logical.adamw"

    def __init__(
        self,
        parameter: Operand,
        gradient: Operand,
        learning_rate: Operand,
        step: Operand,
        states: Sequence[Operand],
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        amsgrad: bool = False,
    ):
        super().__init__(
            *(parameter, gradient, learning_rate, step, states),
            *(beta1, beta2, epsilon, weight_decay),
            amsgrad=amsgrad,
        )
