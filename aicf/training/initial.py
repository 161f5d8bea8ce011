"""First values of a model's parameters and states from a seed, as the modules of `torch.nn` begin.

The numbers are those of this seed and this name, whatever else the model has.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from xdsl.ir import Operation, Use

from aicf.compilation.sources import Model
from aicf.dialects import logical
from aicf.dialects.step_names import SEED
from aicf.dialects.types import TensorInfo, tensor_info
from aicf.errors import InputMismatch
from aicf.runtime.tensors import Array, numpy_dtype
from aicf.runtime.weights import start_of_state
from aicf.training.forward import Argument, Forward, read_forward

_WORD_BITS = 64
_FLOAT_BITS = 53


def initial_weights(
    model: Model, seed: int = 0, given: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """Arrays by name for all parameters, states and meta tensors of a model: those `given`, and others from the seed.

    Weights and biases of `linear`, `conv` and `conv_transpose` are uniform within 1 / sqrt(fan in) (PyTorch's
    `kaiming_uniform_(a=sqrt(5))`); scales of norms are 1, their shifts 0; embeddings are normal. States are 0, running
    variances 1. The meta tensor `seed` is the seed. An ONNX model brings weights of its own.

    Args:
        model: As of `train_step`; an ONNX model has sizes that are numbers.

    Raises:
        InvalidIR: as `train_step`.
        InputMismatch: for some parameter, its readers do not say how it begins.
    """
    return _filled(read_forward(model), seed, given or {}, tuple(_BY_ROLE))


def first_values(forward: Forward, seed: int, given: Mapping[str, Array] | None) -> dict[str, Array]:
    """All that a step begins with: from the seed, or as given, where states and metas may be left out."""
    roles = tuple(_BY_ROLE) if given is None else ("state", "meta")
    return _filled(forward, seed, given or {}, roles)


def _filled(
    forward: Forward, seed: int, given: Mapping[str, Array], roles: Sequence[str]
) -> dict[str, Array]:
    """What is given or came with the model, and of these roles what is not."""
    given = {**forward.weights, **given}
    rest = [a for a in forward.arguments if a.role in roles and a.name not in given]
    return {**given, **{argument.name: _BY_ROLE[argument.role](argument, seed) for argument in rest}}


def _state(argument: Argument, seed: int) -> Array:
    return start_of_state(argument.name, argument.info.shape, argument.info.element.name)


def _meta(argument: Argument, seed: int) -> Array:
    value = seed if argument.name == SEED else 0
    return np.full(argument.info.shape, value, numpy_dtype(argument.info.element.name))


def _parameter(argument: Argument, seed: int) -> Array:
    """By the first op that reads it, through casts."""
    for use in _uses(argument):
        begin = _BEGINNINGS.get((type(use.operation), use.index))
        if begin is not None:
            values = begin(use.operation, argument.info, _Numbers(seed, argument.name))
            return values.astype(numpy_dtype(argument.info.element.name))
    readers = ", ".join(dict.fromkeys(use.operation.name for use in argument.value.uses)) or "no op"
    raise InputMismatch(
        f"parameter '{argument.name}' has no first value (it is read by {readers}); give it, see "
        "aicf.training.initial_weights"
    )


_BY_ROLE: Mapping[str, Callable[[Argument, int], Array]] = {
    "param": _parameter,
    "state": _state,
    "meta": _meta,
}


_SAME_NUMBERS = (logical.CastOp, logical.TransposeOp, logical.ReshapeOp, logical.DetachOp)


def _uses(argument: Argument) -> list[Use]:
    """Its uses, those of a cast, reshape and the like in place of that."""
    found: list[Use] = []
    pending = list(argument.value.uses)
    while pending:
        use = pending.pop(0)
        if isinstance(use.operation, _SAME_NUMBERS):
            pending += use.operation.results[0].uses
        else:
            found.append(use)
    return found


class _Numbers:
    """Random numbers of a seed and a name, by Philox, whose raw words no version of NumPy changes."""

    def __init__(self, seed: int, name: str) -> None:
        key = hashlib.sha256(f"{seed} {name}".encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(key[:16], "little"))

    def uniform(self, shape: Sequence[int]) -> Array:
        """f64 from 0 to 1, 1 left out."""
        words = np.asarray(self._bits.random_raw(math.prod(shape)), np.uint64)
        return (words >> np.uint64(_WORD_BITS - _FLOAT_BITS)).reshape(shape) * 2.0**-_FLOAT_BITS

    def normal(self, shape: Sequence[int]) -> Array:
        """f64 of mean 0 and variance 1. Box and Muller, 1958."""
        radius = np.sqrt(-2 * np.log1p(-self.uniform(shape)))
        return radius * np.cos(2 * np.pi * self.uniform(shape))


_Beginning = Callable[[Operation, TensorInfo, _Numbers], Array]


def _within(fan_in: int, shape: Sequence[int], numbers: _Numbers) -> Array:
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return (2 * numbers.uniform(shape) - 1) * bound


def _of_weight(op: Operation, info: TensorInfo, numbers: _Numbers) -> Array:
    """Of the weight [out, in, ...] of a layer."""
    return _within(math.prod(info.shape[1:]), info.shape, numbers)


def _of_bias(op: Operation, info: TensorInfo, numbers: _Numbers) -> Array:
    """Of the bias beside that weight."""
    fan_in = math.prod(tensor_info(op.operands[1].type).shape[1:])
    return _within(fan_in, info.shape, numbers)


def _of_factor(op: Operation, info: TensorInfo, numbers: _Numbers) -> Array:
    """Of the right factor [..., in, out] of a product, or [..., out, in]."""
    assert isinstance(op, logical.MatmulOp)
    return _within(info.shape[-1 if op.transpose_b is not None else -2], info.shape, numbers)


def _ones(op: Operation, info: TensorInfo, numbers: _Numbers) -> Array:
    return np.ones(info.shape)


def _zeros(op: Operation, info: TensorInfo, numbers: _Numbers) -> Array:
    return np.zeros(info.shape)


def _embedding(op: Operation, info: TensorInfo, numbers: _Numbers) -> Array:
    return numbers.normal(info.shape)


_BEGINNINGS: Mapping[tuple[type[Operation], int], _Beginning] = {
    (logical.LinearOp, 1): _of_weight,
    (logical.LinearOp, 2): _of_bias,
    (logical.ConvOp, 1): _of_weight,
    (logical.ConvOp, 2): _of_bias,
    (logical.ConvTransposeOp, 1): _of_weight,
    (logical.ConvTransposeOp, 2): _of_bias,
    (logical.MatmulOp, 1): _of_factor,
    (logical.LayerNormOp, 1): _ones,
    (logical.LayerNormOp, 2): _zeros,
    (logical.RmsNormOp, 1): _ones,
    (logical.BatchNormOp, 1): _ones,
    (logical.BatchNormOp, 2): _zeros,
    (logical.GroupNormOp, 1): _ones,
    (logical.GroupNormOp, 2): _zeros,
    (logical.GatherOp, 0): _embedding,
}
"""How a parameter begins that is operand i of an op."""
