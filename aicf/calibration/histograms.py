"""Ranges from the distribution of values: what they cut off at the ends lets the integers be finer in the middle.

`entropy` is as S. Migacz describes it, "8-bit Inference with TensorRT", GPU Technology Conference 2017: of all
thresholds, the one whose integers lose the least information about the values within, by the Kullback-Leibler
divergence. Here it looks at every eighth threshold, and takes the bin of 0 to be as full as its neighbour: zeros, which
are most of what follows a relu, are integers at any threshold. With few values the histogram is mostly noise, which no
integers keep, and thresholds come out too low: a hundred thousand values of each operand are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aicf.policies.precision_policy import ASYMMETRIC, ENTROPY
from aicf.runtime.tensors import Array

BINS = 2048
_STRIDE = 8
"""Bins between two thresholds that are compared."""
_LEVELS_OF_A_SIGN = 128


@dataclass
class Histogram:
    """How often values lie in each of `BINS` parts of an interval.

    Args:
        low, high: The smallest and the largest value that will be added.
        counts: So far, int64 [BINS].
    """

    low: float
    high: float
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, values: Array) -> None:
        """Counts values of any shape."""
        if self.high > self.low:
            inside = np.clip(values, self.low, self.high)
            self.counts += np.histogram(inside, BINS, (self.low, self.high))[0]

    def percentiles(self, percentile: float, activations: str) -> tuple[float, float]:
        """The range that holds that percentage of the values: half of the rest is below, half above. Of symmetric
        integers, the range of magnitudes up to that percentile.
        """
        if not self.counts.any():
            return self.low, self.high
        if activations != ASYMMETRIC:
            magnitudes = self.magnitudes()
            top = magnitudes.quantile(percentile / 100)
            return max(self.low, -top), min(self.high, top)
        rest = (1 - percentile / 100) / 2
        return self.quantile(rest, is_upper=False), self.quantile(1 - rest)

    def quantile(self, share: float, *, is_upper: bool = True) -> float:
        """The edge of the bin where the sum of counts passes a share of all: its upper one or its lower one."""
        sums = np.cumsum(self.counts) / self.counts.sum()
        bin_ = min(BINS - 1, int(np.searchsorted(sums, share, "left" if is_upper else "right")))
        width = (self.high - self.low) / BINS
        edge = self.low + width * (bin_ + is_upper)
        return min(self.high, max(self.low, edge))

    def magnitudes(self) -> Histogram:
        """The histogram of absolute values, each bin at its middle."""
        largest = max(abs(self.low), abs(self.high))
        folded = Histogram(0.0, largest)
        middles = self.low + (np.arange(BINS) + 0.5) * (self.high - self.low) / BINS
        bins = np.minimum(BINS - 1, (np.abs(middles) / largest * BINS).astype(np.int64))
        np.add.at(folded.counts, bins, self.counts)
        return folded

    def least_divergence(self, activations: str) -> tuple[float, float]:
        """The range that `entropy` takes, within what was seen."""
        if not self.counts.any():
            return self.low, self.high
        one_sided = activations == ASYMMETRIC and self.low >= 0
        levels = _LEVELS_OF_A_SIGN * (2 if one_sided else 1)
        threshold = _threshold(self.magnitudes(), levels)
        return max(self.low, -threshold), min(self.high, threshold)

    def range(self, method: str, percentile: float, activations: str) -> tuple[float, float]:
        """By `percentile` or `entropy`."""
        if method == ENTROPY:
            return self.least_divergence(activations)
        return self.percentiles(percentile, activations)


def _threshold(histogram: Histogram, levels: int) -> float:
    """Of the magnitudes in a histogram, the one beyond which to cut."""
    counts = histogram.counts.copy()
    counts[0] = counts[1]
    ends = range(levels, BINS + 1, _STRIDE)
    best = min(ends, key=lambda end: _divergence(counts, end, levels))
    return histogram.high * best / BINS


def _divergence(counts: NDArray[np.int64], end: int, levels: int) -> float:
    """Of the values, those beyond bin `end` moved into its last bin, from what `levels` integers leave of them."""
    wanted = counts[:end].astype(np.float64)
    is_hit = wanted > 0
    wanted[-1] += counts[end:].sum()
    groups = np.arange(end) * levels // end
    sums = np.bincount(groups, counts[:end], levels)
    hits = np.bincount(groups, is_hit, levels)
    means = np.divide(sums, hits, out=np.zeros(levels), where=hits > 0)
    left = np.where(is_hit, means[groups], 0.0)
    if not left.sum():
        return np.inf
    p, q = wanted / wanted.sum(), left / left.sum()
    if (q[p > 0] == 0).any():  # what lies beyond falls into a bin that holds nothing itself
        q = np.where((p > 0) & (q == 0), 1e-12, q)
    return float(np.sum(p[p > 0] * np.log(p[p > 0] / q[p > 0])))
