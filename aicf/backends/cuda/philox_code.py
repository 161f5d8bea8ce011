"""Text of `emit.philox`: words of the Philox stream, one by one or four neighbours of one counter at once.

`philox` and `philox_word` are intrinsics of `ptx`: the four words of a counter and a key, and one of them by number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import Operation, SSAValue

from aicf.dialects.emit_kernels import PhiloxOp

NamesOf = Callable[[SSAValue], Sequence[str]]
"""The names of a value, one for each lane."""

WORDS = 4
"""Words of a counter."""


def _counter(offset: str, index: str) -> str:
    return f"u64({offset}) + (u64({index}) >> u64(2))"


def word_text(op: Operation, args: Sequence[str]) -> str:
    """The word of one index."""
    seed, offset, index = args
    return f"i32(philox_word(u32({index} & i64(3)), philox({_counter(offset, index)}, u64({seed}))))"


def neighbouring_words(op: PhiloxOp, names: NamesOf, lanes: int, prefix: str, lines: list[str]) -> list[str]:
    """Names of the words of neighbouring indices from a multiple of four on; adds what computes them.

    Args:
        names: Of the operands.
        lanes: A multiple of four.
    """
    seed, offset, index = (names(operand) for operand in op.operands)
    made: list[str] = []
    for first in range(0, lanes, WORDS):
        own = [f"{prefix}{lane}" for lane in range(first, first + WORDS)]
        lines.append(
            f"{', '.join(own)} = philox({_counter(offset[first], index[first])}, u64({seed[first]}))"
        )
        made += [f"i32({name})" for name in own]
    return made
