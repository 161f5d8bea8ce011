"""What depends on an op, directly or through others, as far as a pass has read the text."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from aicf.dialects import logical


class Dependents:
    """The ops that read what `first` gives, directly or through other ops; each question follows the text further."""

    def __init__(self, first: Operation) -> None:
        self._values: set[SSAValue] = set(first.results)
        self._next: Operation | None = first.next_op
        self._product: Operation | None = None

    def contraction_before(self, later: Operation) -> Operation | None:
        """The first product or convolution among them before `later`, which is after the op of the last question.

        What `later` gives would be kept while that one runs, such as what a training step computes again for its
        backward part.
        """
        while self._product is None and self._next is not None and self._next is not later:
            op, self._next = self._next, self._next.next_op
            if any(operand in self._values for operand in op.operands):
                self._product = op if op.has_trait(logical.Contraction) else None
                self._values.update(op.results)
        return self._product
