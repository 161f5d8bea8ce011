"""Snippets of rows whose maximum and sum of exponentials below it are taken in one sweep, see `exponential_sums.py`.

A thread keeps the maximum of what it has seen, and the sum below that. When the threads of a row meet, each first
shrinks its sum to what is below the maximum of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest
from aicf.backends.cuda.codegen.combine import by_butterflies, partial_dtype, tree
from aicf.backends.cuda.codegen.scalar import constant_text, identity_text
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.cells import packed
from aicf.backends.cuda.families.loops.exponential_sums import exponential_sum_of
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.records import Rounding
from aicf.dialects.emit_kernels import PhaseOp, ReduceOp


class OnlineCode(PhaseCode):
    """The phases of a kernel, one of which does the work of the next one too."""

    def __init__(
        self, nest: LoopNest, spec: GeneratedSpec, refs: Sequence[BufferRef], rounding: Rounding = "fused"
    ):
        super().__init__(nest, spec, refs, rounding)
        found = exponential_sum_of(nest.kernel)
        assert found is not None, "the decisions were checked"
        self.pair = found
        self.total = f"total[{len(super().reductions(found.phase))}]"
        """The register of the sum, after those of the reductions of its phase."""

    def _is_first(self, phase: int) -> bool:
        return phase == self.pair.phase

    def _is_second(self, phase: int) -> bool:
        return phase == self.pair.phase + 1

    def sweeps(self, phase: int) -> bool:
        return not self._is_second(phase) and super().sweeps(phase)

    def reductions(self, phase: int) -> list[ReduceOp]:
        return [] if self._is_second(phase) else super().reductions(phase)

    def known_to(self, phase: int) -> int:
        return super().known_to(phase + 1 if self._is_first(phase) else phase)

    def totals(self, phase: int) -> int:
        return super().totals(phase) + self._is_first(phase)

    def start(self, phase: int) -> Snippet:
        if not self._is_first(phase):
            return super().start(phase)
        names = [identity_text(op.combine.data, partial_dtype(op)) for op in self.reductions(phase)]
        return Snippet((), (), packed([*names, "f32(0.0)"]))

    def _accumulated(
        self, phase: PhaseOp, value: Callable[[SSAValue], list[str]], lines: list[str]
    ) -> list[str]:
        names = super()._accumulated(phase, value, lines)
        if phase is not self.kernel.phases[self.pair.phase]:
            return names
        index = self.pair.index
        lines.append(f"zero = {_finite(f't{index}')}")
        lines.append(f"decay = cuda.libdevice.expf(total[{index}] - zero)")
        powers: list[str] = []
        for lane, name in enumerate(value(self.pair.maximum.value)):
            lines.append(f"power{lane} = cuda.libdevice.expf({name} - zero)")
            powers.append(f"power{lane}")
        lines.append(f"grown = cuda.fma({self.total}, decay, {tree('sum', 'f32', powers)})")
        lines.append(f"grown = grown if valid else {self.total}")
        return [*names, "grown"]

    def combine(self, phase: int, *, finish: bool = True) -> Snippet:
        whole = super().combine(phase, finish=finish)
        if not self._is_first(phase):
            return whole
        lines: list[str] = []
        names = by_butterflies(self.spec, self.reductions(phase), lines)
        lines.append(f"top = {names[self.pair.index]}")
        lines.append(f"zero = {_finite('top')}")
        lines.append(f"own = {self.total} * cuda.libdevice.expf(total[{self.pair.index}] - zero)")
        (total,) = by_butterflies(self.spec, [self.pair.total], lines, ["own"], "own_")
        if self.pair.is_guarded:
            return Snippet(whole.params, tuple(lines), packed([*names, total]))
        # Below -inf nothing is a number, as the program says.
        lines.append(f"below = {total}")
        lines.append(f"below = cuda.selp(top == {_HIDDEN}, top - top, below)")
        return Snippet(whole.params, tuple(lines), packed([*names, "below"]))


def _finite(maximum: str) -> str:
    """What is subtracted: 0 in place of -inf, below which exponentials stay 0."""
    return f"cuda.selp({maximum} == {_HIDDEN}, f32(0.0), {maximum})"


_HIDDEN = constant_text(float("-inf"), "f32")
