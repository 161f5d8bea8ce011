"""Other GPUs than sm_90a: what an architecture lacks is in no kernel, no record and no edge; what it has is used."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.compiler.toolchain import described
from aicf.backends.cuda.runtime.storage import read
from aicf.backends.cuda.target import ARCHES, runs_on
from tests.backends.cuda.sass import listings, names_of


def _program() -> aicf.Graph:
    """A bit of everything: products of one row and of many, a norm, attention, a transpose, a column sum."""
    graph = aicf.Graph("mixed")
    x = graph.input("x", (64, 64), "f16")
    one = graph.input("one", (1, 64), "f16")
    w = graph.param("w", (64, 64), "f16")
    y = graph.layer_norm(
        graph.gelu(graph.matmul(x, w)), graph.param("g", (64,), "f16"), graph.param("b", (64,), "f16")
    )
    scores = graph.softmax(graph.matmul(y, y, transpose_b=True), 1)
    graph.output(graph.matmul(scores, y), "attended")
    graph.output(graph.concat([graph.transpose(y, (1, 0)), x], 0), "moved")
    graph.output(graph.reduce_sum(graph.cast(x, "f32"), (0,)), "columns")
    graph.output(graph.matmul(graph.relu(one), w), "row")
    return graph


PROGRAMMATIC, CLUSTERS, TMA, WGMMA = {"ACQBULK", "PREEXIT"}, {"UCGABAR_ARV"}, {"UTMALDG"}, {"HGMMA"}
"""Opcodes that each feature is seen by."""

LACKS = {"sm_80": PROGRAMMATIC | CLUSTERS | TMA | WGMMA, "sm_90": WGMMA}


@pytest.mark.parametrize("arch", list(LACKS))
def test_programs_compile_for_other_gpus(arch: str) -> None:
    """Programmatic edges are there exactly where the architecture has them, with the opcodes they need."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((64, 64)).astype(np.float16),
        "g": np.ones(64, np.float16),
        "b": np.zeros(64, np.float16),
    }
    exe = aicf.compile(_program(), weights, f"cuda:{arch}")
    (program,) = exe.plan.programs
    module, cubins = read(exe.native.code)
    assert len(program.launches) >= 5 and len(cubins) >= 5
    edges = [edge for kernel in module.programs[-1].kernels for edge in kernel.after]  # after @prepare
    assert edges
    assert any(edge.programmatic for edge in edges) == ARCHES[arch].has_programmatic_launch
    lines = listings([described(symbol, code) for symbol, code in cubins.items()], arch)
    found = {name.split(".")[0] for each in lines for name in names_of(each)}
    assert not LACKS[arch] & found
    assert (found >= PROGRAMMATIC) == ARCHES[arch].has_programmatic_launch


def test_what_an_architecture_has() -> None:
    """As NVIDIA's tables say: clusters, programmatic launch and bulk tensor copies came with compute capability 9.0,
    warpgroup products with its `a` feature set, which runs on that capability alone."""
    for name, arch in ARCHES.items():
        features = (arch.has_programmatic_launch, arch.has_clusters, arch.has_tma)
        assert features == (arch.capability >= 90,) * 3
        assert arch.has_wgmma == arch.is_exact == (name == "sm_90a")
    assert not runs_on("sm_90a", 100) and runs_on("sm_90a", 90) and runs_on("sm_86", 89)
