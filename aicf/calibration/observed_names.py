"""Names of the results that calibration adds to a program: each says what it holds and of which operand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from aicf.dialects.logical import NAME_ATTR
from aicf.passes.support.interface import Result, results_of, set_results
from aicf.runtime.tensors import Array

_PREFIX = "calibration"


@dataclass(frozen=True)
class Observed:
    """What a result of the program is.

    Args:
        kind: Such as `smallest`.
        group: Number of the value in its function: products that read one value have it in common.
        axis: The dimension of the value that is added up over; its channels.
        index: Of the operand of the product.
        product: Id of the product without its bucket.
    """

    kind: str
    group: int
    axis: int
    index: int
    product: str

    @property
    def text(self) -> str:
        """The name of the result; ids may hold any character, so the id is last."""
        return f"{_PREFIX}/{self.kind}/{self.group}/{self.axis}/{self.index}/{self.product}"

    @classmethod
    def of(cls, text: str) -> Observed | None:
        """What a result of that name is; None for one of the model."""
        parts = text.split("/", 5)
        if parts[0] != _PREFIX or len(parts) < 6:
            return None
        _, kind, group, axis, index, product = parts
        return cls(kind, int(group), int(axis), int(index), product)


def add_results(function: FuncOp, observed: Mapping[Observed, SSAValue]) -> None:
    """Lets a function give values beside its own results."""
    added = [Result(value, {NAME_ATTR: StringAttr(each.text)}) for each, value in observed.items()]
    set_results(function, [*results_of(function), *added])


def observed_in(outputs: Mapping[str, Array]) -> dict[Observed, Array]:
    """Those outputs of a run that calibration asked for."""
    found = {Observed.of(name): array for name, array in outputs.items()}
    return {each: array for each, array in found.items() if each is not None}
