"""Compiled models on the fake driver: nodes, edges and arguments are the real ones, the kernels do nothing.

What they would compute is tested elsewhere; here code is a name, so that a model takes a second and not a minute.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import Graph, Value
from aicf.backends.cuda.compiler import build
from aicf.backends.cuda.compiler.code import Cubin, KernelCode
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.record import Options
from aicf.compilation.sources import read_model
from aicf.compilation.stages import passes_of
from aicf.dialects.emit import GroupOp
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.kernels.workload_key import key_of
from aicf.passes.pipelines.text import apply_pass
from aicf.policies.tuning_table import Header, MeasuredWorkload, Row, Timing, TuningTable
from tests.backends.cuda.fake_driver import FakeDriver

TARGET = "cuda:sm_90a"
LIBRARY_VERSION = "1.2.3"


def linear(graph: Graph, x: Value, name: str, columns: int) -> Value:
    return graph.linear(x, graph.param(name, (columns, x.shape[-1]), "f16"), name=name)


def norm(graph: Graph, x: Value, name: str) -> Value:
    scale, shift = (graph.param(f"{name}.{part}", (x.shape[-1],), "f16") for part in ("scale", "shift"))
    return graph.layer_norm(x, scale, shift, name=name)


def chain() -> Graph:
    """Two pre-norm blocks with residuals, one row."""
    graph = Graph("chain")
    x = graph.input("x", (1, 64), "f16")
    for number in range(2):
        up = graph.gelu(linear(graph, norm(graph, x, f"norm{number}"), f"up{number}", 256))
        x = graph.add(linear(graph, up, f"down{number}", 64), x)
    graph.output(x, "y")
    return graph


def diamond() -> Graph:
    """One value, two ways, one result."""
    graph = Graph("diamond")
    h = graph.softmax(linear(graph, graph.input("x", (32, 64), "f16"), "stem", 64), name="spread")
    left = graph.softmax(linear(graph, h, "left", 64), name="left_soft")
    right = graph.softmax(linear(graph, h, "right", 32), name="right_soft")
    graph.output(graph.concat([left, right], 1, name="join"), "y")
    return graph


def branches() -> Graph:
    """Two chains that never meet."""
    graph = Graph("branches")
    for side in ("left", "right"):
        value = graph.input(side, (32, 64), "f16")
        for number in range(2):
            value = graph.relu(linear(graph, value, f"{side}{number}", 64))
        graph.output(value, f"{side}_out")
    return graph


def library_call() -> Graph:
    """A product between two kernels of ours."""
    graph = Graph("library_call")
    x = graph.softmax(graph.input("x", (64, 64), "f16"), name="before")
    graph.output(graph.softmax(linear(graph, x, "product", 64), name="after"), "y")
    return graph


def library_alone() -> Graph:
    """A product from the input to the output, beside a kernel of ours that reads the input too."""
    graph = Graph("library_alone")
    x = graph.input("x", (64, 64), "f16")
    graph.output(linear(graph, x, "product", 64), "y")
    graph.output(graph.softmax(x, name="beside"), "z")
    return graph


def bert_layer() -> Graph:
    """A layer of BERT, its attention in products and softmax."""
    graph = Graph("bert_layer")
    x = graph.input("x", (1, 32, 64), "f16")
    heads = [
        graph.transpose(graph.reshape(linear(graph, x, name, 64), (1, 32, 2, 32)), (0, 2, 1, 3))
        for name in ("query", "key", "value")
    ]
    scores = graph.matmul(heads[0], heads[1], transpose_b=True, name="scores") * 32**-0.5
    context = graph.matmul(graph.softmax(scores, name="weights"), heads[2], name="context")
    mixed = graph.reshape(graph.transpose(context, (0, 2, 1, 3)), (1, 32, 64))
    x = norm(graph, linear(graph, mixed, "mix", 64) + x, "attention_norm")
    inner = graph.gelu(linear(graph, x, "up", 256))
    graph.output(norm(graph, linear(graph, inner, "down", 64) + x, "output_norm"), "y")
    return graph


MODELS: dict[str, tuple[Callable[[], Graph], int]] = {
    "chain": (chain, 1),
    "diamond": (diamond, 2),
    "branches": (branches, 2),
    "library_call": (library_call, 1),
    "library_alone": (library_alone, 1),
    "bert_layer": (bert_layer, 1),
}
"""Model and number of streams, by name."""


@cache
def compiled(name: str) -> CompiledModel:
    """A model for Hopper, with random weights; every `product` is a library call. One for all tests: what it takes of a
    driver it gives back with `runtime.shutdown`."""
    model, streams = MODELS[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "compile_kernels", _named)
        # What is one instruction, or none, is the business of other tests: here it is about edges.
        policy = {"fusion": {"norm": False, "concat": False}, "streams": streams}
        tuning = library_calls(model(), "product", json.dumps(policy))
        return aicf.compile(model(), weights_of(model()), TARGET, policy=policy, tuning=tuning)


def _named(codes: Iterable[KernelCode], arch: str) -> dict[str, Cubin]:
    return {code.symbol: Cubin(code.symbol, code.symbol.encode(), 32, 0, 0) for code in codes}


def weights_of(graph: Graph) -> dict[str, np.ndarray]:
    """Normal f16 numbers for every parameter."""
    random = np.random.default_rng(0)
    (function,) = (op for op in graph.module().walk() if op.name == "func.func")
    arguments = zip(function.arg_attrs.data, function.function_type.inputs.data, strict=True)  # pyright: ignore[reportAttributeAccessIssue,reportUnknownArgumentType,reportUnknownMemberType,reportUnknownVariableType]
    return {
        attributes.data["logical.name"].data: random.standard_normal(type_.get_shape()).astype(np.float16)
        for attributes, type_ in arguments
        if attributes.data["logical.role"].data == "param"
    }


def library_calls(model: Any, name: str, policy: str = "") -> TuningTable | None:
    """A table that has measured group `name` with cublasLt, faster than anything; None if there is no such group."""
    context = make_context()
    source = read_model(model, context)
    for step in passes_of(source, Options(TARGET, policy, "", 1)):
        if isinstance(step, SelectKernelsPass):
            break
        apply_pass(step, context, source.module)
    keys = {
        op.id.data: key_of(workload_of(op).work) for op in source.module.walk() if isinstance(op, GroupOp)
    }
    if name not in keys:
        return None
    record: dict[str, object] = {"algorithm": "00" * 64, "library": LIBRARY_VERSION, "workspace_bytes": 4096}
    row = Row("cuda.cublaslt", 1, {}, record, Timing(0.1, 0.01), Timing(0.1, 0.01))
    header = Header("cuda", "sm_90a", 1, "a fake device", "13.0", {}, {})
    return TuningTable(header).with_works([MeasuredWorkload(keys[name].digest, keys[name], (row,))])


class SilentKernels(dict[str, Any]):
    """A kernel for every symbol, which does nothing."""

    def __contains__(self, symbol: object) -> bool:
        return True

    def __missing__(self, symbol: str) -> Callable[[list[int]], None]:
        return lambda arguments: None


class SilentLibrary:
    """A library that queues a call which does nothing."""

    def __init__(self, driver: FakeDriver, version: str = LIBRARY_VERSION) -> None:
        self.driver = driver
        self.found = version

    def version(self) -> str:
        return self.found

    def open_handle(self) -> int:
        return 1

    def close_handle(self, handle: int) -> None:
        assert handle == 1

    def prepare(self, handle: int, node: Any) -> None:
        assert handle == 1

    def call(self, handle: int, node: Any, addresses: tuple[int, ...], stream: int) -> None:
        self.driver.library_call(stream, lambda: None)
