"""Code that widens rows of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.families.blocks.addresses import row_address
from aicf.backends.cpu.families.blocks.reading import read_codes, read_factor, widen_codes
from aicf.backends.cpu.families.loops.template import share_of
from aicf.dialects.block_bits import BLOCK_BITS, RUN
from aicf.dialects.block_schemes import BLOCK_SCHEMES


@dataclass(frozen=True)
class BlockWidener:
    """Rows of bytes of a scheme to rows of f32."""

    em: Emitter
    scheme: str
    packed: Strided
    result: Strided

    def emit(self, source: Value, target: Value, tid: Value, nthreads: Value) -> None:
        """All rows, each thread its share."""
        em, scheme = self.em, BLOCK_SCHEMES[self.scheme]
        low, high = share_of(em, prod(self.packed.shape[:-1]), tid, nthreads)

        @em.each(low, high)
        def row(number: Value) -> None:
            start = row_address(em, source, self.packed, number)
            out = row_address(em, target, self.result, number)

            @em.each(0, self.packed.shape[-1] // scheme.nbytes)
            def block(index: Value) -> None:
                own = em.moved(start, index, scheme.nbytes, "u8")
                self._block(own, em.moved(out, index, scheme.length, "f32"))

    def _block(self, block: Value, out: Value) -> None:
        em, bits = self.em, BLOCK_BITS[self.scheme]
        runs = bits.part // RUN
        for part in range(BLOCK_SCHEMES[self.scheme].length // bits.part):
            scale = em.splat(read_factor(em, bits.scale, block, part), RUN)
            minimum = None
            if bits.minimum is not None:
                minimum = em.splat(read_factor(em, bits.minimum, block, part), RUN)
            for run in range(part * runs, (part + 1) * runs):
                value = em.b.fmul(scale, widen_codes(em, bits, read_codes(em, bits, block, run)))
                if minimum is not None:
                    add = em.b.fadd if bits.sign > 0 else em.b.fsub
                    value = add(value, minimum)
                em.store(value, em.address(out, run * RUN, "f32"), "f32", RUN)
