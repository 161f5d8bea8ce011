"""Programs of floats of 8 bits: casts, moves, products with sums of f32, and what is around them in networks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial

from aicf.frontends.builder import Graph, Value

FLOAT8 = ("f8E4M3FN", "f8E5M2")
TYPES = tuple(itertools.product(FLOAT8, repeat=2))
"""Element types of left and right operands."""
LARGEST = {"f8E4M3FN": 448.0, "f8E5M2": 57344.0}
MMA_FP8, WGMMA_FP8 = "cuda.gemm_mma_fp8", "cuda.gemm_wgmma_fp8"

Build = Callable[[], Graph]


def saturated(g: Graph, x: Value, dtype: str) -> Value:
    """x in `dtype`, what is too large as its largest number."""
    return g.cast(g.clamp(x, -LARGEST[dtype], LARGEST[dtype]), dtype)


def _per_column(g: Graph, sums: Value, name: str, dtype: str = "f32") -> Value:
    return g.param(name, (sums.shape[-1],), dtype)


def _scaled(g: Graph, sums: Value) -> Value:
    """The sums times a scale for every column, and one for all."""
    return sums * _per_column(g, sums, "scale") * 0.5


def _bias_relu(g: Graph, sums: Value) -> Value:
    return g.relu(_scaled(g, sums) + _per_column(g, sums, "bias"))


def _residual(g: Graph, sums: Value) -> Value:
    """A residual of 8 bits for every element, one of f16 for every column."""
    residual = g.cast(g.input("residual", sums.shape, "f8E5M2"), "f32")
    return sums + residual + g.cast(_per_column(g, sums, "bias", "f16"), "f32")


AFTER: dict[str, Callable[[Graph, Value], Value]] = {
    "sums": lambda g, sums: sums,
    "scaled": _scaled,
    "relu": _bias_relu,
    "gelu": lambda g, sums: g.gelu(_scaled(g, sums)),
    "halves": lambda g, sums: g.cast(_bias_relu(g, sums), "f16"),
    "e4m3": lambda g, sums: saturated(g, _bias_relu(g, sums), "f8E4M3FN"),
    "e5m2": lambda g, sums: g.cast(_bias_relu(g, sums), "f8E5M2"),
    "residual": _residual,
}
"""What follows the sums, by name."""


def float8_product(
    types: tuple[str, str],
    m: int,
    n: int,
    k: int,
    after: str = "sums",
    batch: tuple[int, ...] = (),
    *,
    transpose_b: bool = True,
    b_role: str = "param",
) -> Graph:
    """a b, b stored as [N, K] or, without `transpose_b`, as [K, N]."""
    g = Graph("float8_product")
    a = g.input("a", (*batch, m, k), types[0])
    b = (g.param if b_role == "param" else g.input)("b", (n, k) if transpose_b else (k, n), types[1])
    g.output(AFTER[after](g, g.matmul(a, b, transpose_b=transpose_b, widening=True)), "y")
    return g


def float8_gated(types: tuple[str, str], m: int, n: int, k: int) -> Graph:
    """silu(x w1) times x w2, as the next layer reads it."""
    g = Graph("float8_gated")
    x = g.input("x", (m, k), types[0])
    gate, up = (
        g.matmul(x, g.param(name, (n, k), types[1]), transpose_b=True, widening=True) for name in "gu"
    )
    g.output(saturated(g, g.silu(gate) * up, "f8E4M3FN"), "y")
    return g


def float8_projections(types: tuple[str, str], m: int, n: int, k: int) -> Graph:
    """Three products of one operand, each with scales and a bias."""
    g = Graph("float8_projections")
    x = g.input("x", (m, k), types[0])
    for name in "qkv":
        sums = g.matmul(x, g.param(f"w{name}", (k, n), types[1]), widening=True)
        scaled = sums * g.param(f"s{name}", (n,), "f32") + g.param(f"b{name}", (n,), "f32")
        g.output(g.cast(scaled, "f16"), name)
    return g


LAST_NUMBER = {"f8E4M3FN": 0x7E, "f8E5M2": 0x7C}
"""Bits of the largest positive number or infinity; above it are NaNs."""


def _bits(g: Graph, x: Value) -> Value:
    """The bits of each number, those of all NaNs as one: the hardware's conversion drops their sign. The bits decide
    what is a NaN, for in float64 a number that is too large for its type is none."""
    bits = g.bitcast(x, "u8")
    positive = g.where(bits >= 0x80, bits - 0x80, bits)
    return g.where(positive > LAST_NUMBER[x.dtype], g.constant(0x7F, x.shape, "u8"), bits)


def float8_casts(dtype: str) -> Graph:
    """From a type of 8 bits to all others and back, saturated and not, to the bit; what is too large is among it. The
    numbers are scaled by a power of two, so nothing is rounded before the casts."""
    g = Graph("float8_casts")
    scale = 2.0**8 if dtype == "f8E4M3FN" else 2.0**15
    x, stored = g.input("x", (33, 130)) * scale, g.input("stored", (33, 130), dtype)
    made = {
        "plain": g.cast(x, dtype),
        "saturated": saturated(g, x, dtype),
        "small": g.cast(x * 2.0**-18, dtype),
    }
    made["from_f64"] = g.cast(g.cast(x, "f64") * 1.0, dtype)
    for name, value in made.items():
        g.output(_bits(g, value), name)
    for wide in ("f64", "f32", "f16", "bf16", "i32", "i8", "i1"):
        g.output(g.cast(stored, wide), f"to_{wide}")
    g.output(stored, "same")
    return g


def float8_moves(dtype: str) -> Graph:
    """Transposed, gathered, joined."""
    g = Graph("float8_moves")
    x = g.input("x", (64, 96), dtype)
    g.output(g.transpose(x, [1, 0]), "transposed")
    g.output(g.gather(x, g.constant([3, 61, 0, 7], (4,), "i32"), 0), "gathered")
    g.output(g.concat([g.slice(x, [1, 3], [5, 90]), g.slice(x, [0, 6], [9, 90])], 0), "joined")
    return g


def product_into_float8() -> Graph:
    """A product of f16 whose result is of 8 bits."""
    g = Graph("product_into_float8")
    y = g.linear(g.input("x", (130, 256), "f16"), g.param("w", (192, 256), "f16"))
    g.output(saturated(g, y, "f8E4M3FN"), "y")
    return g


def float8_products() -> Mapping[str, tuple[str, Build, dict[str, object] | None]]:
    """By name of a case, the kernel that multiplies, the program, and entries of the kernel's record that pick a
    variant; None leaves it to the compiler."""
    made = float8_product
    both, mixed, turned = (FLOAT8[0], FLOAT8[0]), (FLOAT8[0], FLOAT8[1]), (FLOAT8[1], FLOAT8[0])
    return {
        "fp8-e4m3": (MMA_FP8, partial(made, both, 75, 100, 136), None),
        "fp8-e4m3-e5m2": (MMA_FP8, partial(made, mixed, 33, 49, 52, "relu", transpose_b=False), None),
        "fp8-e5m2-e4m3": (MMA_FP8, partial(made, turned, 128, 192, 512, "e4m3"), None),
        "fp8-e5m2": (MMA_FP8, partial(made, (FLOAT8[1], FLOAT8[1]), 50, 64, 96, "e5m2", (3,)), None),
        "fp8-row": (MMA_FP8, partial(made, both, 1, 768, 768, "scaled"), None),
        "fp8-residual": (MMA_FP8, partial(made, both, 70, 51, 300, "residual"), None),
        "fp8-halves": (MMA_FP8, partial(made, mixed, 64, 128, 72, "halves"), None),
        "fp8-gated": (MMA_FP8, partial(float8_gated, both, 40, 96, 128), None),
        "fp8-projections": (MMA_FP8, partial(float8_projections, both, 50, 64, 96), None),
        "fp8-cluster": (
            MMA_FP8,
            partial(made, both, 64, 128, 1024, "gelu"),
            {"split_k": 4, "split_through": "cluster"},
        ),
        "fp8-workspace": (
            MMA_FP8,
            partial(made, both, 64, 128, 1024, "e4m3"),
            {"split_k": 8, "split_through": "workspace"},
        ),
        "fp8wg-e4m3": (WGMMA_FP8, partial(made, both, 192, 320, 256), None),
        "fp8wg-e4m3-e5m2": (WGMMA_FP8, partial(made, mixed, 130, 192, 272, "relu", transpose_b=False), None),
        "fp8wg-e5m2-e4m3": (WGMMA_FP8, partial(made, turned, 200, 96, 272, "e4m3"), None),
        "fp8wg-e5m2": (WGMMA_FP8, partial(made, (FLOAT8[1], FLOAT8[1]), 100, 72, 64, "sums", (3,)), None),
        "fp8wg-residual": (WGMMA_FP8, partial(made, both, 77, 51, 80, "residual"), None),
        "fp8wg-halves": (WGMMA_FP8, partial(made, mixed, 77, 104, 80, "halves"), None),
        "fp8wg-gated": (WGMMA_FP8, partial(float8_gated, both, 130, 192, 256), None),
        "fp8wg-projections": (WGMMA_FP8, partial(float8_projections, both, 128, 128, 128), None),
        "fp8wg-waves": (WGMMA_FP8, partial(made, both, 2048, 1536, 256, "e5m2"), {"tile": [128, 128]}),
        "fp8wg-wide": (WGMMA_FP8, partial(made, both, 512, 512, 512, "e4m3"), {"tile": [128, 256]}),
        "fp8wg-shared-a": (
            WGMMA_FP8,
            partial(made, both, 512, 512, 256, "gelu"),
            {"cluster_shape": [1, 2, 1]},
        ),
        "fp8wg-shared-b": (
            WGMMA_FP8,
            partial(made, both, 512, 512, 256, "e4m3"),
            {"cluster_shape": [2, 1, 1]},
        ),
        "fp8wg-split": (WGMMA_FP8, partial(made, both, 64, 128, 1024, "e4m3"), {"cluster_shape": [1, 1, 4]}),
        "fp8wg-deep": (WGMMA_FP8, partial(made, both, 256, 256, 8192), None),
    }
