"""Every prefix of `aicf-inference` means what its input means: on 281 random graphs and on the three programs.

With `--half-drawn` it is 140 of the graphs, which hold every op as well.

After each pass that changed the module, it runs on the reference interpreter in `exact` arithmetic and is compared with
the source program. From `plan-memory` on it also runs in `typed` arithmetic on one poisoned arena, in several
topological orders, bitwise against the text order. What `generate-kernels` writes is interpreted and compared with the
bodies. The graphs take turns with the targets, whose kernels form other
groups and plans; what native code computes is compared elsewhere (`tests/backends/cpu/test_random_programs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from aicf.backends.reference.interpreter import Results, run_module
from aicf.dialects.emit import ProgramOp
from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.emit.lower_to_emit import LowerToEmitPass
from aicf.passes.logical.specialize_shapes import SpecializeShapesPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.semantics import evaluate
from tests.drawn_cases import in_half
from tests.support.generated_code import check_codes
from tests.support.module_state import state_of
from tests.support.op_coverage import OF_TRAINING, assert_holds_every_op
from tests.support.random_graphs import RandomProgram, random_program
from tests.support.topological_orders import random_order

Array = NDArray

EXAMPLES = Path(__file__).parents[2] / "examples"
TARGETS = ("cpu:x86-64-v3", "cuda:sm_90a")
TWO_STREAMS = '{"streams": 2}'
PLACED = ("plan-memory", "plan-capture")
"""Passes after which all slots lie in the arena; what follows them only checks."""
PHASE_ENDS = ("lower-logical", "generate-kernels", "lower-to-emit", "plan-capture")
"""Passes after which every op of the module is verified, too."""

ORDERS = 2
CHUNK = 20
SELDOM = (31, 63, 80, 86, 226, 463, 469)
"""Seeds of graphs with ops that are drawn seldom, such as a shift: the first chunk, which always runs."""
GRAPHS = (*SELDOM, *(seed for seed in range(279) if seed not in SELDOM))
"""Seeds that hold every op."""
CHUNKS = [GRAPHS[first : first + CHUNK] for first in range(0, len(GRAPHS), CHUNK)]
WHOLE = 4
"""Of each so many graphs, one is verified as a whole after each phase and goes through text: that takes a third of the
time, and files of text of their own hold both."""


def graph(seed: int) -> RandomProgram:
    return random_program(seed, float_type="f64" if seed % 5 == 0 else "f32", steps=6)


def test_the_graphs_hold_every_op(pytestconfig: pytest.Config) -> None:
    """Those that run."""
    is_half = pytestconfig.getoption("half_drawn")
    run = [seeds for number, seeds in enumerate(CHUNKS) if in_half(number) or not is_half]
    made = {type(op) for seeds in run for seed in seeds for op in graph(seed).module.walk()}
    where = "tests/support/random_steps/, or drawn too seldom: SELDOM has seeds that hold such ops"
    assert_holds_every_op(made, where, besides=OF_TRAINING)


@pytest.mark.drawn
@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: str(seeds[0]))
def test_random_graphs(seeds: Sequence[int]) -> None:
    for seed in seeds:
        program = graph(seed)
        target, whole = TARGETS[seed % len(TARGETS)], seed // len(TARGETS) % WHOLE == 0
        check_prefixes(program.module, program.inputs, seed, f"seed {seed}", target=target, whole=whole)


@pytest.mark.parametrize("first", range(1000, 1020, 10))
def test_larger_random_graphs(first: int) -> None:
    """More ops a graph: larger groups, more values alive at once."""
    for seed in range(first, first + 10):
        program = random_program(seed, steps=24)
        check_prefixes(program.module, program.inputs, seed, f"seed {seed}")


@pytest.mark.parametrize(
    ("path", "shapes", "dims"),
    [
        pytest.param(
            "digits/mlp.mlir",
            {
                "x": (3, 64),
                **{"fc1.weight": (128, 64), "fc1.bias": (128,)},
                **{"fc2.weight": (64, 128), "fc2.bias": (64,)},
                **{"fc3.weight": (10, 64), "fc3.bias": (10,)},
            },
            "N=1,3",
            id="digits",
        ),
        pytest.param(
            "block/block.mlir",
            {
                "x": (8, 32),
                **{"norm.weight": (32,), "norm.bias": (32,)},
                **{"up.weight": (96, 32), "up.bias": (96,)},
                **{"down.weight": (32, 96), "down.bias": (32,)},
            },
            "",
            id="block",
        ),
        pytest.param(
            "sgd/step.mlir",
            {"x": (64, 8), "y": (64, 4), "w": (4, 8), "b": (4,), "lr": ()},
            "",
            id="sgd",
        ),
    ],
)
def test_programs(path: str, shapes: Mapping[str, tuple[int, ...]], dims: str) -> None:
    random = np.random.default_rng(11)
    feeds = {name: random.uniform(-0.5, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}
    module = parse_module(smaller((EXAMPLES / path).read_text()), path)
    check_prefixes(module, feeds, 11, path, dims)


def smaller(text: str) -> str:
    """The text with the sizes of the block made small; the other programs stay as they are."""
    if "2048" not in text:
        return text
    for size, small in (("2048", "96"), ("512", "32"), ("128", "8")):
        text = text.replace(f"{size}x", f"{small}x")
    return text


def check_prefixes(
    module: ModuleOp,
    feeds: Mapping[str, Array],
    seed: int,
    label: str,
    dims: str = "",
    target: str = TARGETS[0],
    *,
    whole: bool = True,
) -> None:
    """Runs `module` after each pass that changes it.

    Args:
        whole: The module is verified after each phase, and its text at the end parses back to itself.
    """
    context = make_context()
    expected, magnitude = reference_run(module, feeds, dims)
    orders = np.random.default_rng(seed)
    is_static, state = not dims, state_of(module)
    for step in AicfInferencePass(target=target, policy=TWO_STREAMS, dims=dims, training=True).passes():
        step.apply(context, module)
        where = f"{label} after {step.name}"
        is_static = is_static or step.name == SpecializeShapesPass.name
        if step.name.startswith("verify-"):
            continue
        if whole and step.name in PHASE_ENDS:
            verify_module(module)
        before, state = state, state_of(module)
        if is_static and state != before:
            assert_close(expected, run_module(module, feeds, "exact"), magnitude, where)
        if step.name == LowerToEmitPass.name:
            check_codes(module, feeds, where)
        if step.name in PLACED:
            check_orders(module, feeds, orders, where)
    if whole:
        text = str(module)
        assert str(parse_module(text, context=context)) == text, label


def reference_run(module: ModuleOp, feeds: Mapping[str, Array], dims: str) -> tuple[Results, float]:
    """What the source program gives, and the largest magnitude of its inputs and intermediates."""
    source = module.clone()
    SpecializeShapesPass(dims).apply(make_context(), source)
    expected = run_module(source, feeds, "exact")
    largest = max(float(np.max(np.abs(array.astype(np.float64)), initial=1.0)) for array in feeds.values())
    for function in source.body.block.ops:
        if isinstance(function, FuncOp) and fits(function, feeds):
            largest = max(largest, largest_intermediate(function, feeds))
    return expected, largest


def fits(function: FuncOp, feeds: Mapping[str, Array]) -> bool:
    return all(feeds[name].shape == arg.type.get_shape() for name, arg in named_arguments(function))


def named_arguments(function: FuncOp):
    assert function.arg_attrs is not None
    return [
        (e.data["logical.name"].data, arg) for e, arg in zip(function.arg_attrs, function.args, strict=True)
    ]


def largest_intermediate(function: FuncOp, feeds: Mapping[str, Array]) -> float:
    values = {arg: feeds[name] for name, arg in named_arguments(function)}
    largest = 1.0
    for op in function.body.block.ops:
        if op.results:
            found = evaluate(op, [values[operand] for operand in op.operands], "exact")
            values.update(zip(op.results, found, strict=True))
            largest = max(largest, *(float(np.max(np.abs(a.astype(np.float64)), initial=0)) for a in found))
    return largest


def assert_close(expected: Results, found: Results, magnitude: float, where: str) -> None:
    """Equal names, shapes and values to 1e-12 of `magnitude`; NaN never passes."""
    for wanted, given in ((expected.outputs, found.outputs), (expected.updates, found.updates)):
        assert wanted.keys() == given.keys(), where
        for name, array in wanted.items():
            assert given[name].shape == array.shape, f"{where}: {name}"
            difference = np.abs(given[name].astype(np.float64) - array.astype(np.float64))
            assert np.all(difference <= 1e-12 * magnitude), f"{where}: {name} is off by {np.max(difference)}"


def check_orders(
    module: ModuleOp, feeds: Mapping[str, Array], orders: np.random.Generator, where: str
) -> None:
    """One arena gives the bits of separate buffers, in text order and in any other order that the edges allow."""
    apart = run_module(module, feeds, "typed")
    programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
    main = programs[-1] if len(programs) <= 2 else None
    candidates = [None] if main is None else [None, *(random_order(main, orders) for _ in range(ORDERS))]
    for order in candidates:
        found = run_module(module, feeds, "typed", order=order, arena=True)
        for wanted, given in ((apart.outputs, found.outputs), (apart.updates, found.updates)):
            for name, array in wanted.items():
                assert given[name].tobytes() == array.tobytes(), f"{where}, order {order}: {name}"
