"""What quantising a model gave: sizes, the error of each tensor, and how well a text is predicted before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.inspection.explain import format_table

_MOST_TENSORS = 10
"""Rows of the table."""


@dataclass(frozen=True)
class TensorError:
    """What rounding one tensor did.

    Args:
        name: Of the tensor.
        was, scheme: How it was stored, and is.
        relative_error: The root of the mean squared difference, by that of the numbers before.
        largest: The largest difference.
        nbytes: As it is stored now.
        because: Why the scheme is not the one that was asked for; empty if it is.
    """

    name: str
    was: str
    scheme: str
    relative_error: float
    largest: float
    nbytes: int
    because: str


@dataclass(frozen=True)
class Prediction:
    """How well a text is predicted: its perplexity, see `aicf.llm.perplexity`, before and after."""

    before: float
    after: float


@dataclass(frozen=True)
class Quantized:
    """A model that was quantised.

    Args:
        scheme: That was asked for.
        elements: Of all tensors.
        bytes_before, bytes_after: Of their numbers; those of a folder count as f32.
        tensors: Those that were rounded, the one with the largest relative error first.
        prediction: With a text.
        notes: What is to be known of the result, a sentence each.
    """

    scheme: str
    elements: int
    bytes_before: int
    bytes_after: int
    tensors: tuple[TensorError, ...]
    prediction: Prediction | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        before, after = (f"{size / 1e6:,.1f} MB" for size in (self.bytes_before, self.bytes_after))
        bits = 8 * self.bytes_after / self.elements
        blocks = [f"{self.scheme}, {before} to {after} ({bits:.2f} bits an element)"]
        if self.prediction is not None:
            found = self.prediction
            blocks.append(f"perplexity of the text: {found.after:.4f}, before {found.before:.4f}")
        worst = self.tensors[:_MOST_TENSORS]
        if worst:
            heading = f"the {len(worst)} of {len(self.tensors)} rounded tensors with the largest error:"
            blocks.append(f"{heading}\n{_table(worst)}")
        return "\n\n".join([*blocks, *self.notes])


def _table(tensors: Sequence[TensorError]) -> str:
    columns = ("tensor", "was", "is", "relative error", "largest difference", "")
    rows = [
        (each.name, each.was, each.scheme, f"{each.relative_error:.3%}", f"{each.largest:.3g}", each.because)
        for each in tensors
    ]
    return format_table(columns, rows)
