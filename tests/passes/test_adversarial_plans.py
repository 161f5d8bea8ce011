"""No damaged program passes the verifiers if it can go wrong: an independent simulator says which can.

Valid programs of several shapes are damaged in one to three places; the simulator judges each by the contract of edges,
byte by byte. All it finds racy must be refused. What is refused although it is not racy is counted, for that is the
price of rules on whole slots.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf import Graph, Value
from aicf.dialects.emit import PREPARE
from aicf.errors import AicfError
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.support.programs import programs
from aicf.passes.verify.verify_emit import VerifyEmitPass
from aicf.passes.verify.verify_order import VerifyOrderPass
from tests.support.plan_mutations import Mutation, Original, mutations, put_buffers_first
from tests.support.race_simulator import find_race
from tests.support.random_graphs import random_program

RACY = 500
"""Racy plans a program; there are nine programs."""

SEVERAL = 3
"""Most damages at a time."""

DRAWS = 5000
"""Most damaged plans a program, with those that come again."""


def linear(graph: Graph, x: Value, name: str, columns: int) -> Value:
    return graph.linear(x, graph.param(name, (columns, x.shape[-1]), "f16"))


def chain() -> Graph:
    """Pre-norm blocks with residuals, one row: programmatic edges throughout."""
    graph = Graph("chain")
    x = graph.input("x", (1, 32), "f16")
    for number in range(3):
        scale, shift = (graph.param(f"{what}{number}", (32,), "f16") for what in "st")
        up = graph.gelu(linear(graph, graph.layer_norm(x, scale, shift), f"up{number}", 64))
        x = graph.add(linear(graph, up, f"down{number}", 32), x)
    graph.output(x, "y")
    return graph


def diamond() -> Graph:
    """One value, two ways, one result."""
    graph = Graph("diamond")
    h = graph.softmax(linear(graph, graph.input("x", (8, 32), "f16"), "w", 32))
    left, right = (graph.softmax(linear(graph, h, name, size)) for name, size in (("l", 32), ("r", 16)))
    graph.output(graph.concat([left, right], 1), "y")
    return graph


def branches() -> Graph:
    """Two chains that meet at the end."""
    graph = Graph("branches")
    x = graph.input("x", (16, 32), "f16")
    values = [graph.input("z", (16, 32), "f16"), x]
    for number in range(3):
        acts = (graph.relu, graph.gelu)
        values = [
            act(linear(graph, value, f"w{number}.{side}", 32))
            for side, (act, value) in enumerate(zip(acts, values, strict=True))
        ]
    graph.output(graph.softmax(values[0] * values[1]), "y")
    return graph


def fan() -> Graph:
    """Four ways out of one value, each with a result of its own and a part in a common one."""
    graph = Graph("fan")
    h = graph.softmax(graph.input("x", (8, 32), "f32"))
    parts = [graph.softmax(graph.exp(h) * float(number), axis=0) for number in range(4)]
    for number, part in enumerate(parts):
        graph.output(part + 1.0, f"y{number}")
    graph.output(graph.concat([graph.softmax(part) for part in parts], 0), "y")
    return graph


def attention() -> Graph:
    """A block of attention from products and softmax, and a residual."""
    graph = Graph("attention")
    x = graph.input("x", (8, 32), "f16")
    q, k, v = (linear(graph, x, name, 32) for name in "qkv")
    scores = graph.matmul(q, k, transpose_b=True) * 0.25
    mixed = linear(graph, graph.matmul(graph.softmax(scores), v), "o", 32)
    scale, shift = (graph.param(name, (32,), "f16") for name in "st")
    h = graph.layer_norm(mixed + x, scale, shift)
    graph.output(graph.add(linear(graph, graph.gelu(linear(graph, h, "up", 64)), "down", 32), h), "y")
    return graph


STEP = """
func.func @step(
  %x : tensor<16x8xf32> {logical.name = "x", logical.role = "input"},
  %t : tensor<16x4xf32> {logical.name = "t", logical.role = "input"},
  %w : tensor<4x8xf32> {logical.name = "w", logical.role = "param"},
  %b : tensor<4xf32> {logical.name = "b", logical.role = "param"}
) -> (tensor<16x4xf32> {logical.name = "e"}, tensor<4x8xf32> {logical.updates = "w"},
      tensor<4xf32> {logical.updates = "b"}) {
  %p = logical.linear %x, %w, %b : (tensor<16x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> tensor<16x4xf32>
  %e = logical.sub %p, %t : tensor<16x4xf32>
  %g = logical.matmul %e, %x {transpose_a} : (tensor<16x4xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %h = logical.reduce_sum %e {axes = [0]} : tensor<16x4xf32> -> tensor<4xf32>
  %v = logical.sub %w, %g : tensor<4x8xf32>
  %c = logical.sub %b, %h : tensor<4xf32>
  func.return %e, %v, %c : tensor<16x4xf32>, tensor<4x8xf32>, tensor<4xf32>
}
"""
"""Parameters that are read and then overwritten in place."""


def compiled(model: Callable[[], Graph] | str, streams: int, *, concat: bool = True) -> ModuleOp:
    """The final module for Hopper."""
    module = parse_module(model, "test.mlir") if isinstance(model, str) else model().module()
    policy = json.dumps({"streams": streams, "fusion": {"concat": concat}})
    AicfInferencePass("cuda:sm_90a", policy=policy, training=True).apply(make_context(), module)
    return module


ROWS = "!emit.buffer<4x16xf32, arena>"
HALF = "!emit.buffer<2x16xf32, arena>"
BACKWARDS = "!emit.buffer<16xf32, arena, strides [-1]>"
ROW = "!emit.buffer<16xf32, arena>"
OUT = "!emit.buffer<4x16xf32, bound>"
OUT_ROW = "!emit.buffer<16xf32, bound>"
KERNEL = (
    'kernel("k", {version = 1 : i64, determinism = "bitwise", early_reads = [], triggers = true}) stream(0)'
)


def relu(name: str, source: str, source_type: str, target: str, target_type: str, *after: str) -> str:
    edges = ", ".join(f'"{each}" full' for each in after)
    return (
        f'emit.resolved "relu" id(1) name("{name}") src(["{name}"]) ins(%{source} : {source_type}) '
        f"outs(%{target} : {target_type}) {KERNEL} after([{edges}])"
    )


VIEWS = "\n".join(
    [
        'emit.program @views attributes {phase = "final", arena_bytes = 1024 : i64} {',
        f'%x = emit.bind input "x" binding(direct) : {OUT}',
        f'%y = emit.bind output "y" binding(direct) : {OUT}',
        f'%z = emit.bind output "z" binding(direct) : {OUT_ROW}',
        *(
            f"%{name} = emit.slot offset({offset}) size(256) align(64) : {ROWS}"
            for name, offset in (("a", 0), ("b", 256), ("c", 512), ("d", 768))
        ),
        f"%a0 = emit.view %a offset(0) : {ROWS} to {HALF}",
        f"%a1 = emit.view %a offset(32) : {ROWS} to {HALF}",
        f"%b0 = emit.view %b offset(0) : {ROWS} to {HALF}",
        f"%b1 = emit.view %b offset(32) : {ROWS} to {HALF}",
        f"%back = emit.view %c offset(31) : {ROWS} to {BACKWARDS}",
        f"%d0 = emit.view %d offset(0) : {ROWS} to {ROW}",
        f"%d0back = emit.view %d offset(15) : {ROWS} to {BACKWARDS}",
        f"%d1 = emit.view %d offset(16) : {ROWS} to {ROW}",
        relu("first", "x", OUT, "b", ROWS),
        relu("low", "b0", HALF, "a0", HALF, "first"),
        relu("high", "b1", HALF, "a1", HALF, "first"),
        relu("join", "a", ROWS, "c", ROWS, "low", "high"),
        relu("flip", "back", BACKWARDS, "d0", ROW, "join"),
        relu("flop", "d0back", BACKWARDS, "d1", ROW, "flip"),
        relu("row", "d1", ROW, "z", OUT_ROW, "flop"),
        relu("last", "a", ROWS, "y", OUT, "join"),
        "}",
    ]
)
"""Halves of a slot written by two instructions, and rows read from their ends to their starts."""


PROGRAMS: dict[str, Callable[[], ModuleOp]] = {
    "chain": lambda: compiled(chain, 1),
    "diamond": lambda: compiled(diamond, 2),
    "diamond with a join": lambda: compiled(diamond, 2, concat=False),
    "branches": lambda: compiled(branches, 2),
    "branches on one stream": lambda: compiled(branches, 1),
    "fan": lambda: compiled(fan, 3),
    "attention": lambda: compiled(attention, 2),
    "training step": lambda: compiled(STEP, 2),
    "views": lambda: parse_module(VIEWS, "views.mlir"),
}


def refusal(module: ModuleOp) -> str | None:
    """What the verifiers say; None if they accept."""
    try:
        VerifyOrderPass().apply(Context(), module)
        VerifyEmitPass(meaning=False).apply(Context(), module)
    except AicfError as error:
        return error.message
    return None


def plans(catalogue: Sequence[Mutation], seed: int) -> Iterator[tuple[Mutation, ...]]:
    """Single damages, pairs and triples, no two equal; each kind as often as any other."""
    pick = random.Random(seed)
    by_kind: dict[str, list[Mutation]] = {}
    for mutation in catalogue:
        by_kind.setdefault(mutation.kind, []).append(mutation)
    seen: set[tuple[str, ...]] = set()
    for _ in range(DRAWS):
        kinds = pick.sample(list(by_kind), k=pick.randint(1, SEVERAL))
        plan = tuple(pick.choice(by_kind[kind]) for kind in kinds)
        key = tuple(sorted(mutation.kind + mutation.name for mutation in plan))
        if key not in seen:
            seen.add(key)
            yield plan


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_racy_plan_is_accepted(name: str) -> None:
    """And the undamaged program is, before and after. Damage is done to what runs at every call."""
    module = PROGRAMS[name]()
    assert not any(map(find_race, programs(module))) and refusal(module) is None
    (program,) = (each for each in programs(module) if each.sym_name.data != PREPARE)
    put_buffers_first(program)
    original, found, racy = Original(program), Counter[str](), 0
    for plan in plans(mutations(program), seed=len(name)):
        for mutation in plan:
            mutation.apply()
        race, said = find_race(program), refusal(module)
        original.restore()
        what = " + ".join(f"{mutation.kind} ({mutation.name})" for mutation in plan)
        assert race is None or said is not None, f"accepted, though {race}: {what}"
        found[race.kind if race else "harmless but refused" if said else "harmless"] += 1
        racy += race is not None
        if racy == RACY:
            break
    print(f"\n{name}: {racy} racy plans of {found.total()}, none accepted; {dict(found)}")
    assert find_race(program) is None and refusal(module) is None
    assert racy == RACY and found["harmless"]


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(24))
def test_what_the_passes_make_is_not_racy(seed: int) -> None:
    """Random programs on up to three streams, by the simulator alone."""
    module = random_program(seed, steps=12).module
    policy = f'{{"streams": {1 + seed % 3}}}'
    AicfInferencePass(("cuda:sm_90a", "cpu:x86-64-v3")[seed % 2], policy=policy, training=True).apply(
        make_context(), module
    )
    races = [find_race(program) for program in programs(module)]
    assert races and not any(races)
