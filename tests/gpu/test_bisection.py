"""On the GPU: a slow decision is found among harmless ones, and programs give the same bits in every process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.compiler.toolchain import toolchain_lock
from aicf.bisection import Slower, Wrong
from aicf.compilation.compiled import CompiledModel
from aicf.errors import BackendUnavailable, InputMismatch
from tests.gpu.artifacts import obtained

pytestmark = pytest.mark.gpu

SIZE = 2048


def _can_compile() -> bool:
    try:
        return bool(toolchain_lock())
    except BackendUnavailable:
        return False


compiles = pytest.mark.skipif(not _can_compile(), reason="candidates are compiled here")


def layers(policy: str = "{}") -> CompiledModel:
    """Three products that take most of the time, by the machine's own target."""
    graph = aicf.Graph("layers")
    x = graph.input("x", (SIZE, SIZE), "f16")
    weights: dict[str, np.ndarray] = {}
    for number in (1, 2, 3):
        name = f"fc{number}.weight"
        weights[name] = np.random.default_rng(number).standard_normal((SIZE, SIZE)).astype(np.float16)
        weights[name] /= np.float16(SIZE**0.5)
        product = graph.matmul(x, graph.param(name, (SIZE, SIZE), "f16"), name=f"fc{number}")
        x = graph.relu(product, name=f"relu{number}")
    graph.output(x, "y")
    return aicf.compile(graph, weights, "cuda", policy=policy)


@compiles
def test_the_slow_kernel_is_found() -> None:
    """A product by mma.sync takes longer than by wgmma; memory of its own for each value takes nothing."""
    bad = layers("{kernels: {fc2: cuda.gemm_mma}, memory: separate}")
    result = aicf.bisect(layers(), bad, Slower())
    assert [(change.subject, change.after) for change in result.found] == [("fc2", "cuda.gemm_mma")]
    assert result.total == 2


@compiles
def test_other_kernels_are_not_wrong() -> None:
    with pytest.raises(InputMismatch, match="the check says that the bad program is good"):
        aicf.bisect(layers(), layers("{kernels: {fc2: cuda.gemm_mma}}"), Wrong())


@pytest.mark.parametrize("name", ["encoder-f16"])
def test_bits_are_the_same_in_every_process(name: str, tmp_path: Path) -> None:
    model, certificate = obtained(name), tmp_path / "certificate.json"
    found = aicf.verify(model, runs=200, processes=2)
    assert found.is_same, str(found)
    environment = found.certificate.environment
    assert environment.capability and environment.driver and environment.device.startswith("NVIDIA")
    found.certificate.save(certificate)
    assert aicf.verify(model, runs=20, processes=1, against=certificate).is_same
