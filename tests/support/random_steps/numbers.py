"""Steps around numbers of rank 0 that several tensors read: offsets of random numbers, rates, places.

What a training step has beside its network. They are drawn apart from the other families.
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from tests.support.random_steps.generator import Generator


def _number(g: Generator, element: str) -> SSAValue:
    """An old number, mostly, or a new one."""
    old = g.values(lambda info: not info.shape and info.element.name == element)
    return g.choice(old) if old and g.chance(0.8) else _new_number(g, element)


def _new_number(g: Generator, element: str) -> SSAValue:
    given = g.argument((), "input", element)
    factor = g.choice((2, 3)) if element == "i64" else 0.5
    return g.require(logical.MulOp(given, g.require(logical.ConstantOp(factor, given.type))))


def _tensor(g: Generator, element: str) -> SSAValue:
    found = g.values(lambda info: info.element.name == element and len(info.shape) > 0)
    return g.choice(found) if found and g.chance(0.7) else g.argument(g.shape(), "input", element)


def _spread(g: Generator, number: SSAValue, like: SSAValue) -> SSAValue:
    return g.require(logical.BroadcastOp(number, (), tensor_info(like.type).shape))


def _next_number(g: Generator) -> None:
    element = g.choice(("i64", g.float_type))
    g.add(g.choice((logical.AddOp, logical.MaxOp))(_number(g, element), _number(g, element)))


def _scaled(g: Generator) -> None:
    element = g.choice(("i64", g.float_type))
    x = _tensor(g, element)
    g.add(g.choice((logical.AddOp, logical.MulOp))(x, _spread(g, _number(g, element), x)))


def _counted(g: Generator) -> None:
    """Each element by where it stands along one of its dims."""
    element = g.choice(("i64", g.float_type))
    x = _tensor(g, element)
    shape = tensor_info(x.type).shape
    position = g.require(logical.IotaOp(int(g.random.integers(len(shape))), shape, element))
    g.add(logical.AddOp(x, g.require(logical.MulOp(position, _spread(g, _number(g, element), x)))))


def _noted(g: Generator) -> None:
    """A number in one place of a tensor."""
    x = _tensor(g, g.float_type)
    shape = tensor_info(x.type).shape
    position = g.require(logical.IotaOp(int(g.random.integers(len(shape))), shape, "i64"))
    here = g.require(logical.CompareOp("eq", position, _spread(g, _number(g, "i64"), x)))
    g.add(logical.SelectOp(here, _spread(g, _number(g, g.float_type), x), x))


def _dropped(g: Generator) -> None:
    x, seed = _tensor(g, g.float_type), _number(g, "i64")
    g.add(logical.DropoutOp(x, seed, _number(g, "i64"), g.choice((0.1, 0.5))))


def _random(g: Generator) -> None:
    form = g.choice(("uniform", "normal"))
    g.add(logical.PhiloxOp(_number(g, "i64"), _number(g, "i64"), g.shape(), form, g.float_type))


STEPS = (_next_number, _scaled, _scaled, _counted, _noted, _dropped, _dropped, _random)
