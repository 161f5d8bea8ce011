"""Products with packed weights that take along what is before and after them, without a GPU: float64 on simulated
threads, bits of a row, machine code, decisions and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.blocks.kernel import MatmulBlocksKernel
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.kinds import PACKED_PRODUCTS
from aicf.frontends.builder import Graph, Value
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units
from tests.backends.cuda import attention_simulator, simulator
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, listing, names_of, starting
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(22)
KERNEL = MatmulBlocksKernel()
EPSILON = 1e-5
Array = np.ndarray


def weight(g: Graph, name: str, scheme: str, rows: int, columns: int) -> Value:
    """A packed matrix."""
    stored = BLOCK_SCHEMES[scheme]
    return g.dequantize_blocks(g.param(name, (rows, columns // stored.length * stored.nbytes), "u8"), scheme)


def norm(g: Graph, x: Value) -> Value:
    """RMSNorm with a scale."""
    return g.rms_norm(x, g.param("scale", (x.shape[-1],)), epsilon=EPSILON)


def mlp(scheme: str, rows: int, columns: int, inner: int) -> Graph:
    """A norm, a gate and what it gates, then a product whose result joins x."""
    g = aicf.Graph("mlp")
    x = g.input("x", (rows, columns))
    normed = norm(g, x)
    gate = g.linear(normed, weight(g, "gate", scheme, inner, columns))
    up = g.linear(normed, weight(g, "up", scheme, inner, columns))
    g.output(x + g.linear(g.silu(gate) * up, weight(g, "down", scheme, columns, inner)), "y")
    return g


def compiled(g: Graph, arch: str = "sm_90a") -> object:
    module = g.module()
    AicfInferencePass(f"cuda:{arch}").apply(make_context(), module)
    return module


def test_placeholder():
    g = mlp("Q4_0", 2, 96, 64)
    m = compiled(g)
    data = {
        "x": RNG.standard_normal((2, 96)).astype(np.float32),
        "scale": RNG.standard_normal(96).astype(np.float32),
    }
    for n, r, c in (("gate", 64, 96), ("up", 64, 96), ("down", 96, 64)):
        data[n] = random_rows(RNG, BLOCK_SCHEMES["Q4_0"], r, c)
    wide = {n: widened(BLOCK_SCHEMES["Q4_0"], data[n]).astype(np.float64) for n in ("gate", "up", "down")}
    got = simulated(m, data, partial(simulator.run, more=attention_simulator.names))["y"]
    x = data["x"].astype(np.float64)
    h = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * data["scale"]
    a = h @ wide["gate"].T
    y = x + (a / (1 + np.exp(-a)) * (h @ wide["up"].T)) @ wide["down"].T
    print(np.abs(got - y).max(), np.abs(y).max())
    assert np.allclose(got, y, rtol=1e-4, atol=1e-4 * np.abs(y).max())
