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


def neighbouring_words(
    op: PhiloxOp, names: NamesOf, words: Sequence[int], prefix: str, lines: list[str]
) -> list[str]:
    """Names of the words that lanes take of counters which four neighbours share; adds what computes them.

    Args:
        names: Of the operands.
        words: The word of each lane, see `LaneSteps.counter_words`.
    """
    seed, offset, index = (names(operand) for operand in op.operands)
    for first in range(0, len(words), WORDS):
        own = [f"{prefix}{lane}" for lane in range(first, first + WORDS)]
        lines.append(
            f"{', '.join(own)} = philox({_counter(offset[first], index[first])}, u64({seed[first]}))"
        )
    return [f"i32({prefix}{word})" for word in words]
