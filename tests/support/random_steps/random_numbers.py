"""Steps that add random numbers; seeds and offsets are small, negative ones too: the ends of the counters."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf.dialects import logical
from tests.support.random_steps.generator import Generator


def _key(g: Generator) -> tuple[SSAValue, SSAValue]:
    return g.argument((), "input", "i64"), g.argument((), "input", "i64")


def _low_bits(g: Generator, word: SSAValue) -> logical.AndOp:
    return logical.AndOp(word, g.require(logical.ConstantOp(15, word.type)))


def _philox(g: Generator) -> None:
    form = g.choice(logical.PHILOX_FORMS)
    if form == "bits":
        op = logical.PhiloxOp(*_key(g), g.shape(), form, "i32")
        g.add_tamed(op, lambda word: _low_bits(g, word))
    else:
        g.add(logical.PhiloxOp(*_key(g), g.shape(), form, g.float_type))


def _philox_word(g: Generator) -> None:
    """Seeds, offsets and indices from lane to lane."""
    shape = g.shape()
    index = g.require(logical.IotaOp(int(g.random.integers(len(shape))), shape, "i64"))
    seed, offset = (
        g.argument(shape, "input", "i64")
        if g.chance(0.5)
        else g.require(logical.BroadcastOp(g.argument((), "input", "i64"), (), shape))
        for _ in range(2)
    )
    g.add_tamed(logical.PhiloxWordOp(seed, offset, index), lambda word: _low_bits(g, word))


def _dropout(g: Generator) -> None:
    x = g.float_value()
    g.add(logical.DropoutOp(x, *_key(g), g.choice((0.0, 0.1, 0.5))))


STEPS = (
    _philox,
    _philox_word,
    _dropout,
)
