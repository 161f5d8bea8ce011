"""Code that takes the boxes of a class one after the other, by falling scores and, of equal ones, rising indices.

A tree of `fan_out` children a node stands above the scores: an entry of it is the highest key of the node below. A key
is a whole number in the order of the scores, so that one more, the lowest, says that a box may not be taken. It is
found again from the last level down: where the highest key first lies. What was taken from a run of scores is not
written down: it is what comes before the box that was taken last, in the order, so scores are read and never copied.
"""

from __future__ import annotations

from dataclasses import dataclass

from aicf.backends.cpu.codegen.ir_builder import I32, I64, Emitter, Value, ir
from aicf.backends.cpu.families.nms.schedule import SuppressionSpec

_BITS = {"i32": (I32, 0x7FFFFFFF), "i64": (I64, 0x7FFFFFFFFFFFFFFF)}
"""The integer that a key is, and the largest of them."""


@dataclass(frozen=True)
class Ranking:
    """The tree of one class, and the scores below it.

    Args:
        stride: Elements from one score to the next.
        floor: Boxes of scores that are not above it are never taken; those of NaN neither.
        tree: Where its keys lie.
    """

    em: Emitter
    spec: SuppressionSpec
    scores: Value
    stride: int
    floor: Value | None
    tree: Value

    def build(self) -> Value:
        """Writes the tree; the highest key of all."""
        em, fan_out = self.em, self.spec.fan_out
        below = -(-self.spec.boxes // fan_out)
        for level, (start, nodes) in enumerate(self.spec.levels):
            entries = em.address(self.tree, start, self.spec.key)
            # Entries after the last belong to no node.
            em.store(
                self._const(self._gone),
                em.address(entries, (nodes - 1) * fan_out, self.spec.key),
                self.spec.key,
                fan_out,
            )

            @em.each(0, below)
            def note(node: Value, level: int = level, entries: Value = entries) -> None:
                keys = self._keys(node)[0] if level == 0 else self._node(level - 1, node)[1]
                em.store(self._highest(keys), em.address(entries, node, self.spec.key), self.spec.key, 1)

            below = nodes
        return self._highest(self._node(len(self.spec.levels) - 1, em.index(0))[1])

    def is_none(self, key: Value) -> Value:
        """Whether the highest key says that no box is left."""
        return self.em.b.icmp_signed("==", key, self.em.const(self.spec.key, 1, self._gone))

    def take(self, key: Value, taken: Value) -> tuple[Value, Value]:
        """The first box after index `taken` that has the highest key, and the highest key of what is left.

        There is such a box. `taken` is the box that was taken last if its key was as high, else -1.
        """
        em, fan_out = self.em, self.spec.fan_out
        wanted, node = em.splat(key, fan_out), em.index(0)
        path = list[tuple[Value, Value, Value]]()
        for level in reversed(range(len(self.spec.levels))):
            address, entries = self._node(level, node)
            lane = em.first_lane(em.b.icmp_signed("==", entries, wanted))
            path.append((address, entries, lane))
            node = em.b.add(em.scaled(node, fan_out), lane)
        keys, first = self._keys(node)
        is_equal = em.b.icmp_signed("==", keys, wanted)
        lane = em.first_lane(em.b.and_(is_equal, self._is_after(em.b.sub(taken, first))))
        is_left = em.b.or_(em.b.icmp_signed("<", keys, wanted), em.b.and_(is_equal, self._is_after(lane)))
        following = self._highest(em.b.select(is_left, keys, self._const(self._gone)))
        for address, entries, index in reversed(path):
            here = em.b.icmp_signed("==", self._lane_indices(), self._splat_index(index))
            entries = em.b.select(here, em.splat(following, fan_out), entries)
            em.store(entries, address, self.spec.key, fan_out)
            following = self._highest(entries)
        return em.b.add(first, lane), following

    def _is_after(self, index: Value) -> Value:
        """In which lanes of a run the indices are higher than `index`, counted from its first."""
        return self.em.b.icmp_signed(">", self._lane_indices(), self._splat_index(index))

    def _node(self, level: int, node: Value) -> tuple[Value, Value]:
        """Where the entries of a node lie, and what they are."""
        start, nodes = self.spec.levels[level]
        address = self.em.address(self.tree, start, self.spec.key)
        if nodes > 1:
            address = self.em.moved(address, node, self.spec.fan_out, self.spec.key)
        return address, self.em.load(address, self.spec.key, self.spec.fan_out)

    def _keys(self, run: Value) -> tuple[Value, Value]:
        """Keys of the scores below a node of the lowest level, and the index of the first.

        The last run starts early enough to end at the last score; what it shares with the one before is not its own.
        """
        em, b, fan_out, size = self.em, self.em.b, self.spec.fan_out, self.spec.boxes
        dtype = self.spec.dtype
        if size < fan_out:
            scores = em.load_strided(self.scores, self.stride, dtype, fan_out, size)
            return self._ranked(scores, em.lane_mask(fan_out, size)), em.index(0)
        own = em.scaled(run, fan_out)
        if size % fan_out == 0:
            first, inside = own, None
        else:
            last = em.index(size - fan_out)
            first = b.select(b.icmp_signed("<", own, last), own, last)
            inside = b.icmp_signed(">=", self._lane_indices(), self._splat_index(b.sub(own, first)))
        scores = em.load_strided(
            em.moved(self.scores, first, self.stride, dtype), self.stride, dtype, fan_out
        )
        return self._ranked(scores, inside), first

    def _ranked(self, scores: Value, inside: Value | None) -> Value:
        """A whole number in the order of the scores; zeros are equal. The lowest for what may not be taken."""
        em, b = self.em, self.em.b
        dtype, fan_out = self.spec.dtype, self.spec.fan_out
        if self.floor is None:
            allowed = b.fcmp_ordered("ord", scores, scores)
        else:
            allowed = b.fcmp_ordered(">", scores, em.splat(self.floor, fan_out))
        if inside is not None:
            allowed = b.and_(allowed, inside)
        type_, highest = _BITS[self.spec.key]
        bits = b.bitcast(b.fadd(scores, em.const(dtype, fan_out, 0.0)), ir.VectorType(type_, fan_out))
        sign = b.ashr(bits, self._const(type_.width - 1))
        ordered = b.xor(bits, b.and_(sign, self._const(highest)))
        return b.select(allowed, ordered, self._const(self._gone))

    def _highest(self, keys: Value) -> Value:
        """Of the keys of a node."""
        while isinstance(keys.type, ir.VectorType):
            keys = self.em.intrinsic("smax", *self.em.halves(keys))
        return keys

    @property
    def _gone(self) -> int:
        return -_BITS[self.spec.key][1] - 1

    def _const(self, value: int) -> Value:
        return self.em.const(self.spec.key, self.spec.fan_out, value)

    def _lane_indices(self) -> Value:
        return self.em.ramp("i32", self.spec.fan_out, 1)

    def _splat_index(self, index: Value) -> Value:
        return self.em.splat(self.em.b.trunc(index, I32), self.spec.fan_out)
