"""Products with packed weights that take norms, gates and residuals along, against float64, on levels and threads."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeGuard

import numpy as np
import pytest
from xdsl.ir import Operation, SSAValue

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.emit import PREPARE, ResolvedOp, SlotOp
from aicf.errors import AicfError
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.read_decisions import decisions_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from aicf.passes.support.programs import programs
from tests.passes.test_raise_emit import stripped
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(251)
WIDTH, HIDDEN, EPSILON = 256, 512, 1e-5
SHAPES = {"gate": (HIDDEN, WIDTH), "up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
ROWS = (1, 5, 70)
"""A row, fewer than a chunk, and a chunk with some more."""


def packed_shape(name: str, scheme: str) -> tuple[int, int]:
    (rows, columns), found = SHAPES[name], BLOCK_SCHEMES[scheme]
    return rows, columns // found.length * found.nbytes


def mlp(scheme: str, *, norm: bool = True) -> aicf.Graph:
    """The MLP of a decoder: ``x + down(silu(gate(norm(x))) * up(norm(x)))``."""
    graph = aicf.Graph("mlp")
    x = graph.input("x", ("T", WIDTH))
    rows = graph.rms_norm(x, graph.param("scale", (WIDTH,)), epsilon=EPSILON) if norm else x

    def linear(value: Any, name: str) -> Any:
        packed = graph.param(name, packed_shape(name, scheme), "u8")
        return graph.linear(value, graph.dequantize_blocks(packed, scheme), name=f"{name}.linear")

    hidden = graph.silu(linear(rows, "gate")) * linear(rows, "up")
    graph.output(graph.add(x, linear(hidden, "down"), name="residual"), "y")
    return graph


def weights_of(scheme: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random blocks, with a norm whose products with the gate are of the order of 1; what they are in float64."""
    packed = {name: random_rows(RNG, BLOCK_SCHEMES[scheme], *shape) for name, shape in SHAPES.items()}
    wide = {name: widened(BLOCK_SCHEMES[scheme], rows) for name, rows in packed.items()}
    scale = RNG.standard_normal(WIDTH) / (wide["gate"].std() * WIDTH**0.5)
    return {**packed, "scale": scale.astype(np.float32)}, wide


def expected(x: np.ndarray, given: dict[str, np.ndarray], wide: dict[str, np.ndarray]) -> np.ndarray:
    x = x.astype(np.float64)
    rows = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * given["scale"].astype(np.float64)
    gate, up = rows @ wide["gate"].T, rows @ wide["up"].T
    return x + (gate * (1 + np.tanh(gate / 2)) / 2 * up) @ wide["down"].T


def kinds(model: CompiledModel) -> list[Counter[str]]:
    module = parse_module(model.ir("emit"))
    return [
        Counter(each.kind.data for each in program.instructions)
        for program in programs(module)
        if program.sym_name.data != PREPARE
    ]


@pytest.mark.parametrize(
    ("target", "scheme", "threads"),
    [
        ("cpu", "Q4_1", 2),
        ("cpu:x86-64-v4", "Q6_K", 1),
        ("cpu:x86-64-v3", "Q4_0", 2),
        ("cpu:generic", "Q8_0", 1),
    ],
)
def test_an_mlp_is_two_instructions(target: str, scheme: str, threads: int) -> None:
    given, wide = weights_of(scheme)
    model = aicf.compile(mlp(scheme), given, target, dims={"T": list(ROWS)}, threads=threads)
    assert kinds(model) == [Counter({"matmul_blocks_fused": 2})] * len(ROWS)
    for rows in ROWS:
        x = RNG.standard_normal((rows, WIDTH)).astype(np.float32)
        wanted = expected(x, given, wide)
        np.testing.assert_allclose(model(x), wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())


def test_a_row_has_the_same_bits_in_every_batch() -> None:
    given, _ = weights_of("Q4_1")
    model = aicf.compile(mlp("Q4_1"), given, "cpu", dims={"T": list(ROWS)})
    x = RNG.standard_normal((ROWS[-1], WIDTH)).astype(np.float32)
    whole = model(x)
    for rows in ROWS[:-1]:
        np.testing.assert_array_equal(model(x[:rows]), whole[:rows])


def test_decisions_give_the_same_program() -> None:
    first, again = (mlp("Q4_1").module() for _ in range(2))
    run(AicfInferencePass("cpu:x86-64-v4", dims="T=1,70").passes(), make_context(), first)
    policy = decisions_of(first).to_line()
    run(AicfInferencePass("cpu:x86-64-v4", policy, dims="T=1,70").passes(), make_context(), again)
    assert stripped(again) == stripped(first)


def test_policies_keep_the_parts_apart() -> None:
    off = '{"fusion": {"gated": false, "prologue": false, "epilogue": false, "horizontal": false}}'
    given, wide = weights_of("Q4_1")
    model = aicf.compile(mlp("Q4_1"), given, "cpu", dims="T=5", policy=off)
    assert kinds(model)[0]["matmul_blocks"] == len(SHAPES)
    x = RNG.standard_normal((5, WIDTH)).astype(np.float32)
    wanted = expected(x, given, wide)
    np.testing.assert_allclose(model(x), wanted, rtol=2e-5, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("of_x", [False, True])
def test_rows_without_a_norm_and_a_result_over_the_residual(of_x: bool) -> None:
    """The residual of a value that is not multiplied may be overwritten; that of x itself may not: each thread reads
    all of it."""
    packed = random_rows(RNG, BLOCK_SCHEMES["Q5_1"], WIDTH, WIDTH)
    graph = aicf.Graph("square")
    given, other = graph.input("x", ("T", WIDTH)), graph.input("other", ("T", WIDTH))
    # Prefix sums are instructions of their own, whose results are in the arena.
    x, kept = graph.cumsum(given, 1, name="kept.x"), graph.cumsum(other, 1, name="kept.other")
    weight = graph.dequantize_blocks(graph.param("square", packed.shape, "u8"), "Q5_1")
    total = graph.add(graph.linear(x, weight), x if of_x else kept, name="total")
    graph.output(graph.cumsum(total, 1), "y")
    graph.output(graph.reduce_sum(other, [1]), "sum")
    model = aicf.compile(graph, {"square": packed}, "cpu", dims="T=70", threads=2)
    (product,) = (op for op in parse_module(model.ir("emit")).walk() if is_product(op))
    read, written = (slot_of(each) for each in (product.ins[-1], product.outs[0]))
    assert (written == read) is not of_x
    a, b = (RNG.standard_normal((70, WIDTH)).astype(np.float32) for _ in range(2))
    wide, (rows, added) = widened(BLOCK_SCHEMES["Q5_1"], packed), np.cumsum([a, b], 2, np.float64)
    wanted = np.cumsum(rows @ wide.T + (rows if of_x else added), 1)
    found = model.run({"x": a, "other": b})["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def is_product(op: Operation) -> TypeGuard[ResolvedOp]:
    return isinstance(op, ResolvedOp) and op.kind.data == "matmul_blocks_fused"


def slot_of(buffer: SSAValue) -> int:
    """Where it starts in the arena."""
    assert isinstance(buffer.owner, SlotOp)
    return buffer.owner.offset.value.data


@pytest.mark.parametrize(
    ("own", "other", "message"),
    [
        ("threads = 1", "threads = 2", "cannot run it as its record says"),
        ('"pairs", lanes = 16', '"pairs", lanes = 8', "its 'lanes' is 8, legal: 16"),
    ],
)
def test_records_that_were_edited_are_refused(own: str, other: str, message: str) -> None:
    """Several threads for the rows that each thread makes, and vectors of another level."""
    given, _ = weights_of("Q4_1")
    text = aicf.compile(mlp("Q4_1"), given, "cpu:x86-64-v4", dims="T=5").ir("emit")
    start = text.index("rows = {") if own.startswith("threads") else 0
    edited = text[:start] + text[start:].replace(own, other, 1 if start else -1)
    with pytest.raises(AicfError, match=message):
        module = parse_module(edited)
        run(AicfInferencePass("cpu:x86-64-v4").passes()[-3:-2], make_context(), module)
