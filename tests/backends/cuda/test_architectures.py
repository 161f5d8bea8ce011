"""Older GPUs: what Hopper alone has is in no kernel, no record and no edge of theirs."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.storage import read
from aicf.backends.cuda.toolchain import described
from tests.backends.cuda.sass import instructions


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


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_programs_compile_for_older_gpus(arch: str) -> None:
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
    edges = [edge for kernel in module.programs[0].kernels for edge in kernel.after]
    assert edges and not any(edge.programmatic for edge in edges)
    for symbol, code in cubins.items():
        found = instructions(described(symbol, code))
        assert not {"ACQBULK", "PREEXIT", "UTMALDG", "HGMMA", "UCGABAR_ARV"} & {
            name.split(".")[0] for name in found
        }
