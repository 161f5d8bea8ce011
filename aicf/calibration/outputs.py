"""Comparing the outputs of a lowered program with those of f32, over all samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aicf.errors import InputMismatch
from aicf.runtime.tensors import Array

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class OutputAccuracy:
    """How far one output is from that of f32.

    Args:
        name: Of the output.
        relative_error: Root of the mean square of the difference by that of the f32 output, both over all samples; of
            an output that is all 0, that of the difference alone. Infinite where one is not finite and the other is.
        largest: The largest difference.
        agreement: The share of equal labels, the place of the largest element along the last dimension; of an output
            of integers, the share of equal elements. None where the last dimension has one element or none.
        is_float: Whether its elements are floats.
    """

    name: str
    relative_error: float
    largest: float
    agreement: float | None
    is_float: bool = True


@dataclass(frozen=True)
class Comparison:
    """Of all outputs.

    Args:
        outputs: In order.
        top1: The share of right labels of the first output that has any; None if no labels were given.
    """

    outputs: tuple[OutputAccuracy, ...]
    top1: float | None = None

    @property
    def error(self) -> float:
        """The largest relative error of an output of floats; of integers where there is no other."""
        floats = [each.relative_error for each in self.outputs if each.is_float]
        return max(floats or [each.relative_error for each in self.outputs], default=0.0)

    @property
    def agreement(self) -> float | None:
        """The share of equal labels of the first output that has labels."""
        return next((each.agreement for each in self.outputs if each.agreement is not None), None)


@dataclass
class _Sums:
    """What is added up of one output."""

    difference: float = 0.0
    reference: float = 0.0
    elements: int = 0
    largest: float = 0.0
    same: int = 0
    labels: int = 0


@dataclass
class Reference:
    """The outputs of f32.

    Args:
        runs: By name, for each sample.
        labels: Right ones of the first output that has labels, for all samples, int [count]; None if unknown.
    """

    runs: Sequence[Mapping[str, Array]]
    labels: Labels | None = None

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        found = self._labels_of(self.runs)
        if found is None:
            raise InputMismatch("labels: no output of the model has labels; leave labels= out")
        if found.size != self.labels.size:
            raise InputMismatch(
                f"labels: {self.labels.size} of them, and the samples have {found.size}; give one for each"
            )

    @property
    def names(self) -> list[str]:
        """Of the outputs."""
        return list(self.runs[0])

    @property
    def top1(self) -> float | None:
        """The share of right labels of f32 itself; None if no labels were given."""
        return self._top1(self._labels_of(self.runs)) if self.labels is not None else None

    def compare(self, runs: Iterable[Mapping[str, Array]]) -> Comparison:
        """How far the outputs of other runs on the same samples are from these."""
        sums = {name: _Sums() for name in self.names}
        labels: list[Labels] = []
        name = self._labelled
        for wanted, outputs in zip(self.runs, runs, strict=True):
            for each, own in sums.items():
                _add(own, wanted[each], outputs[each])
            if name is not None:
                labels.append(_labels(outputs[name]).reshape(-1))
        found = tuple(_accuracy(each, own, self.runs[0][each]) for each, own in sums.items())
        top1 = self._top1(np.concatenate(labels)) if labels and self.labels is not None else None
        return Comparison(found, top1)

    @property
    def _labelled(self) -> str | None:
        """The first output that has labels."""
        return next((name for name, array in self.runs[0].items() if _has_labels(array)), None)

    def _labels_of(self, runs: Sequence[Mapping[str, Array]]) -> Labels | None:
        name = self._labelled
        if name is None:
            return None
        found: list[Labels] = [_labels(outputs[name]).reshape(-1) for outputs in runs]
        return np.concatenate(found)

    def _top1(self, found: Labels | None) -> float | None:
        if found is None or self.labels is None:
            return None
        return float(np.count_nonzero(found == self.labels)) / (found.size or 1)


def _has_labels(array: Array) -> bool:
    """Whether a place along the last dimension says something."""
    return array.dtype.kind not in "iub" and array.ndim > 0 and array.shape[-1] > 1


def _labels(array: Array) -> Labels:
    return np.asarray(np.argmax(array, axis=-1), np.int64)


def _add(sums: _Sums, wanted: Array, got: Array) -> None:
    reference, found = wanted.astype(np.float64), got.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        is_same = (reference == found) | (np.isnan(reference) & np.isnan(found))
        difference = np.where(is_same, 0.0, np.abs(reference - found))
    difference[np.isnan(difference)] = np.inf
    sums.difference += float(np.sum(np.square(difference)))
    sums.reference += float(
        np.sum(np.square(reference, where=np.isfinite(reference), out=np.zeros_like(reference)))
    )
    sums.elements += difference.size
    sums.largest = max(sums.largest, float(np.max(difference, initial=0.0)))
    if _has_labels(wanted):
        sums.same += int(np.sum(_labels(wanted) == _labels(got)))
        sums.labels += _labels(wanted).size
    elif wanted.dtype.kind in "iub":
        sums.same += int(np.sum(is_same))
        sums.labels += is_same.size


def _accuracy(name: str, sums: _Sums, like: Array) -> OutputAccuracy:
    scale = sums.reference or float(sums.elements or 1)
    error = math.sqrt(sums.difference / scale)
    agreement = sums.same / sums.labels if sums.labels else None
    return OutputAccuracy(name, error, sums.largest, agreement, like.dtype.kind not in "iub")
