"""The text that ends a product of few rows: sums of one element become an element of the result, by the scalar program.

A template loads what the program reads beside the sums into registers `extra` when it likes, and splices `finish` with
the sums of an element. Blocks along y have a result each where products do not meet in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from aicf.backends.base import Launch
from aicf.backends.common.loop_nest import Access, access_of
from aicf.backends.cuda.codegen.scalar import address_text, element_text, load_text, point_snippet, store_text
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.records import Rounding


@dataclass(frozen=True)
class Extra:
    """An epilogue operand: its number, its index among the program's arguments, where it lies."""

    operand: int
    argument: int
    access: Access
    base: str


class PointEpilogue:
    """The scalar program of an instruction at one element; without one, the sum is stored.

    Args:
        launch: Operands and results are `in0`, `in1`, .. and `out0`, ..
        products: Sums that meet in an element.
        operands: For each result, the numbers of the operands that its program reads beside the sums.
        row_shape: Sizes of the dims that make the rows, batch dims first.
        rounding: Of narrow floats.
        early_reads: Numbers of the operands that are read before the wait.
    """

    def __init__(
        self,
        launch: Launch,
        products: int,
        operands: Sequence[Sequence[int]],
        row_shape: Sequence[int],
        rounding: Rounding,
        early_reads: Sequence[int] = (),
    ):
        self._launch, self._products, self._operands = launch, products, operands
        self._row_shape = row_shape
        self._rounding: Rounding = rounding
        extras = self._extras()
        self.early = [each for each in extras if each.operand in early_reads]
        self.late = [each for each in extras if each.operand not in early_reads]

    def loads(self, extras: Sequence[Extra]) -> Snippet:
        """Loads of one element each at row `m` and column `n`, as a tuple."""
        indices = self._indices()
        texts = [
            load_text(e.access.dtype, address_text(e.base, element_text(e.access, indices), e.access.dtype))
            for e in extras
        ]
        return Snippet(("m", "n"), (), f"({', '.join(texts)},)" if texts else "")

    def finish(self) -> Snippet:
        """The epilogue of one result and its store; what it reads beside the sums is in `extra` from `first` on, what
        is early before what is late."""
        lines: list[str] = []
        value = "sums[0]"
        code, (ref, *_) = self._launch.code, self._launch.outs
        access = Access(ref.dtype, 0, ref.strides)
        if code is not None:
            point = point_snippet(code, len(code.in_maps), (), self._launch.outs[:1], self._rounding)
            lines += [f"acc{i} = sums[{i}]" for i in range(self._products)]
            for index, extra in enumerate((*self.early, *self.late)):
                lines.append(f"acc{extra.argument} = extra[first + {index}]")
            lines += point.body
            value = point.result
            access = access_of(code.out_maps[0], ref.strides, ref.dtype)
        base = chosen_base([f"out{o}" for o in range(len(self._launch.outs))])
        element = element_text(access, self._indices())
        lines.append(store_text(ref.dtype, address_text(base, element, ref.dtype), value))
        return Snippet(("m", "n", "first", "sums"), tuple(lines))

    def _extras(self) -> list[Extra]:
        """What the epilogue reads beside the sums."""
        code = self._launch.code
        if code is None:
            return []
        found: list[Extra] = []
        for index in range(len(self._operands[0])):
            operands = [numbers[index] for numbers in self._operands]
            ref = self._launch.ins[operands[0]]
            argument = self._products + index
            access = access_of(code.in_maps[argument], ref.strides, ref.dtype)
            found.append(
                Extra(operands[0], argument, access, chosen_base([f"in{number}" for number in operands]))
            )
        return found

    def _indices(self) -> list[str]:
        """The indices of result element (m, n), one for each dim."""
        texts: list[str] = []
        rows = inner = prod(self._row_shape)
        for size in self._row_shape:
            inner //= size
            texts.append("0" if size == 1 else "m" if size == rows else f"(m // {inner} % {size})")
        return [*texts, "n"]


def chosen_base(names: Sequence[str]) -> str:
    """The pointer of the result that this block computes: block y."""
    text = names[0]
    for index, name in enumerate(names[1:], 1):
        text = f"cuda.selp(cuda.blockIdx.y == {index}, {name}, {text})"
    return text
