"""Code for `emit.philox`: words of the Philox stream in the lanes of a vector.

A word lives in the low half of an i64 lane, where the product of two words is one instruction. Lanes that take their
words from different counters run all rounds each; four neighbours that share a counter run them once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I32, Emitter, Value, ir

WORDS = 4
"""Words of a counter."""

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True)
class _Lanes:
    """Arithmetic of words in i64 lanes."""

    em: Emitter
    lanes: int

    def number(self, value: int) -> Value:
        return self.em.const("i64", self.lanes, value)

    def low(self, value: Value) -> Value:
        return self.em.b.and_(value, self.number(0xFFFFFFFF))

    def high(self, value: Value) -> Value:
        return self.em.b.lshr(value, self.number(32))

    def words(self, seed: Value, counter: Value) -> list[Value]:
        """The four words of a counter; upper halves of its words are not cleared."""
        b = self.em.b
        k0, k1 = self.low(seed), self.high(seed)
        c0, c1, c2, c3 = self.low(counter), self.high(counter), self.number(0), self.number(0)
        for _ in range(_ROUNDS):
            even = b.mul(self.low(c0), self.number(_MULTIPLIERS[0]))
            odd = b.mul(self.low(c2), self.number(_MULTIPLIERS[1]))
            c0, c2 = b.xor(b.xor(self.high(odd), c1), k0), b.xor(b.xor(self.high(even), c3), k1)
            c1, c3 = odd, even
            k0, k1 = (b.add(k, self.number(step)) for k, step in zip((k0, k1), _KEY_STEPS, strict=True))
        return [c0, c1, c2, c3]

    def narrowed(self, word: Value) -> Value:
        return self.em.b.trunc(word, self.em.type("i32", self.lanes))


def separate_words(em: Emitter, lanes: int, operands: Sequence[Value]) -> Value:
    """The word of each lane, by seeds, offsets and indices of its own."""
    at, b = _Lanes(em, lanes), em.b
    seed, offset, index = operands
    first, *others = at.words(seed, b.add(offset, b.lshr(index, at.number(2))))
    selected = b.and_(index, at.number(WORDS - 1))
    chosen = first
    for number, word in enumerate(others, 1):
        chosen = b.select(b.icmp_unsigned("==", selected, at.number(number)), word, chosen)
    return at.narrowed(chosen)


def neighbouring_words(em: Emitter, order: Sequence[int], operands: Sequence[Value]) -> Value:
    """The words that lanes take of counters which four neighbours share.

    Args:
        order: The word of each lane, see `LaneSteps.counter_words`.
        operands: Scalars; the index is that of the first lane.
    """
    count = len(order) // WORDS
    at, b = _Lanes(em, count), em.b
    seed, offset, index = operands
    first = b.add(offset, b.lshr(index, em.index(2)))
    counter = em.splat(first, count)
    if count > 1:
        counter = b.add(counter, em.ramp("i64", count, 1))
    words = [at.narrowed(word) for word in at.words(em.splat(seed, count), counter)]
    made = _interleaved(em, words, count)
    return made if list(order) == list(range(len(order))) else _shuffled(em, made, made, order)


def _interleaved(em: Emitter, words: Sequence[Value], count: int) -> Value:
    """Lane 4j + w of the result is lane j of words w."""
    if count == 1:
        made = em.const("i32", WORDS, 0)
        for number, word in enumerate(words):
            made = em.with_lane(made, number, word)
        return made
    pairs = [(lane // 2) + lane % 2 * count for lane in range(2 * count)]
    even, odd = (_shuffled(em, words[pair], words[pair + 1], pairs) for pair in (0, 2))
    fours = [lane // 4 * 2 + lane % 2 + lane % 4 // 2 * 2 * count for lane in range(4 * count)]
    return _shuffled(em, even, odd, fours)


def _shuffled(em: Emitter, x: Value, y: Value, order: Sequence[int]) -> Value:
    return em.b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(order)), list(order)))
