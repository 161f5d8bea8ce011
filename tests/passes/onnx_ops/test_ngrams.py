"""TfIdfVectorizer against counting n-grams one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from tests.support.onnx_models import expect

Array = NDArray[Any]
GRAMS = [(2,), (0,), (5,), (1, 2), (3, 3), (0, 4), (2, 0), (1, 0, 1), (4, 4, 2)]
OPTIONS: dict[str, Any] = {
    "ngram_counts": [0, 3, 11],
    "ngram_indexes": [4, 0, 8, 2, 1, 7, 3, 9, 6],
    "pool_int64s": [number for gram in GRAMS for number in gram],
}
WEIGHTS = [0.5, 1.5, 2.0, 0.25, 3.0, 1.0, 0.75, 4.0, 2.5]


def counted(sequence: Sequence[int], low: int, high: int, skips: int) -> Array:
    """How often each of the n-grams is found, at its index."""
    found = np.zeros(len(GRAMS))
    for number, gram in enumerate(GRAMS):
        for step in range(1, 2 if len(gram) == 1 else skips + 2):
            for start in range(len(sequence) - (len(gram) - 1) * step):
                taken = tuple(sequence[start + step * index] for index in range(len(gram)))
                found[number] += taken == gram and low <= len(gram) <= high
    return found


@pytest.mark.parametrize(
    ("mode", "low", "high", "skips"), [("TF", 1, 1, 0), ("IDF", 2, 2, 0), ("TFIDF", 1, 3, 2), ("TF", 3, 3, 7)]
)
def test_counts(mode: str, low: int, high: int, skips: int) -> None:
    x = np.random.default_rng(skips).integers(0, 6, (3, 20)).astype("i4")
    found = np.stack([counted(row.tolist(), low, high, skips) for row in x])
    if mode != "TF":
        found = (np.minimum(found, 1) if mode == "IDF" else found) * WEIGHTS
    wanted = np.zeros((3, 10), "f4")
    wanted[:, OPTIONS["ngram_indexes"]] = found
    lengths = {"min_gram_length": low, "max_gram_length": high, "max_skip_count": skips}
    expect("TfIdfVectorizer", [x], mode=mode, weights=WEIGHTS, **lengths, **OPTIONS, expected=[wanted])


def test_one_sequence_and_a_large_pool() -> None:
    x = np.random.default_rng(0).integers(0, 1500, 3000)
    wanted = np.bincount(x, minlength=1500).astype("f4")
    pool = {"ngram_counts": [0], "ngram_indexes": list(range(1500)), "pool_int64s": list(range(1500))}
    lengths = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    expect("TfIdfVectorizer", [x], mode="TF", **lengths, **pool, expected=[wanted], targets=("cpu",))


def test_a_pool_of_strings() -> None:
    options = {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0, "ngram_counts": [0]}
    with pytest.raises(aicf.UnsupportedOp, match="its pool is of strings"):
        expect(
            "TfIdfVectorizer",
            [np.zeros(3, "i8")],
            mode="TF",
            ngram_indexes=[0],
            pool_strings=["a"],
            **options,
            expected=[],
        )
