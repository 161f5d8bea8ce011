"""The schemes of blocks against their definitions, element by element in Python's own arithmetic, and against gguf."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.dialects.block_schemes import SCHEMES
from tests.support.blocks import SINGLES, random_blocks, widened

RNG = np.random.default_rng(89)


@pytest.mark.parametrize("name", SCHEMES)
def test_every_element_is_what_its_scheme_says(name: str) -> None:
    scheme = SCHEMES[name]
    blocks = random_blocks(RNG, scheme, 3)
    found = scheme.widen(blocks)
    assert found.dtype == np.float32 and found.shape == (3, scheme.length)
    np.testing.assert_allclose(found, widened(scheme, blocks), rtol=1e-5, atol=1e-4)
    assert len(np.unique(found)) > min(scheme.length, 8)


def test_a_tensor_is_its_rows_of_blocks() -> None:
    scheme = SCHEMES["Q8_0"]
    blocks = random_blocks(RNG, scheme, 12)
    found = scheme.array(blocks.reshape(-1), (2, 3, 64))
    np.testing.assert_array_equal(found, scheme.widen(blocks).reshape(2, 3, 64))
    np.testing.assert_array_equal(scheme.rows(blocks.reshape(2, 3, -1)), found)


@pytest.mark.peers
@pytest.mark.parametrize(
    "name", [name for name in SCHEMES if name not in ("F32", "F16") and name not in SINGLES]
)
def test_every_scheme_is_that_of_the_package_gguf(name: str) -> None:
    """Bit for bit."""
    gguf = pytest.importorskip("gguf")
    quants = pytest.importorskip("gguf.quants")
    blocks = random_blocks(RNG, SCHEMES[name], 64)
    theirs = quants.dequantize(blocks.reshape(-1), gguf.GGMLQuantizationType[name])
    np.testing.assert_array_equal(SCHEMES[name].widen(blocks).reshape(-1), theirs)
