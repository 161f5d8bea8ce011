"""Layouts of values between instructions: the meaning stays whatever is asked for, and decisions can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import aicf
from aicf.dialects.emit import GroupOp, ResolvedOp, find_ledger
from aicf.dialects.emit_buffers import buffer_of
from aicf.dialects.types import tensor_info
from aicf.errors import PolicyError
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.emit.read_decisions import decisions_of
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.layout import search as layout_search
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from tests.gpu.programs import random_arrays
from tests.passes.test_raise_emit import stripped
from tests.support.random_convnets import random_convnet
from tests.support.random_graphs import run_program

Array = NDArray[Any]

TARGET = "cpu:x86-64-v3"
LAST = "{layouts: {'*': channels_last}}"
PLAIN = "{layouts: {'*': row_major}}"


def compiled(graph: Graph, policy: str = "", target: str = TARGET, *, grouped: bool = False) -> ModuleOp:
    """The final program, or what `select-kernels` sees."""
    module = graph.module().clone()
    passes = AicfInferencePass(target, policy).passes()
    names = [each.name for each in passes]
    run(passes[: names.index(SelectKernelsPass.name)] if grouped else passes, make_context(), module)
    return module


def told(module: ModuleOp) -> list[Any]:
    ledger = find_ledger(module)
    assert ledger is not None
    return [decision for decision in ledger.decisions if decision.pass_name.data == "select-layouts"]


def built(graph: Graph, policy: str, given: dict[str, Array], target: str = "cpu") -> Any:
    weights = {name: array for name, array in given.items() if name != "x"}
    return aicf.compile(graph.module(), weights=weights, target=target, policy=policy)


@given(seed=st.integers(0, 1 << 20), target=st.sampled_from(("cpu", "cpu", "reference")))
@settings(max_examples=10, deadline=None, derandomize=True)
def test_values_stay_whatever_the_layout(seed: int, target: str) -> None:
    graph = random_convnet(seed)
    given = random_arrays(graph.module(), f"layouts {seed}")
    wanted = run_program(graph.module(), given)
    for policy in ("auto", LAST):
        found = built(graph, policy, given, target).run({"x": given["x"]})
        for name, value in wanted.items():
            assert np.abs(found[name] - value).max() <= 1e-5 * max(1.0, np.abs(value).max()), (name, policy)


def test_random_nets_have_what_the_pass_is_for() -> None:
    """Values that lie channels-last, and copies that are gone."""
    decisions = [
        each for seed in range(12) for each in told(compiled(random_convnet(seed), LAST, grouped=True))
    ]
    assert sum(each.choice.data.startswith("channels_last") for each in decisions) >= 6
    assert (
        sum(
            each.cost.data["transposes_saved"].value.data
            for each in decisions
            if "transposes_saved" in each.cost.data
        )
        >= 3
    )


@pytest.mark.parametrize("seeds", [range(0, 5), range(12, 17)])
def test_a_raised_program_has_the_layouts_again(seeds: range) -> None:
    for seed in seeds:
        module = compiled(random_convnet(seed), LAST if seed % 3 else "")
        first = stripped(module)
        RaiseEmitPass().apply(make_context(), module)
        run(AicfInferencePass(start="lowered").passes(), make_context(), module)
        assert stripped(module) == first, seed


@pytest.mark.parametrize("seed", [2, 4, 9, 13])
def test_a_policy_that_is_taken_out_gives_the_program_again(seed: int) -> None:
    module = compiled(random_convnet(seed), LAST)
    policy = decisions_of(module)
    assert policy.kernel.layouts["*"] == "row_major"
    assert "channels_last" in policy.kernel.layouts.values()
    again = compiled(random_convnet(seed), policy.to_line())
    assert stripped(again) == stripped(module)


def test_a_program_for_another_target_keeps_the_layouts() -> None:
    module = compiled(random_convnet(4), LAST)
    before = {
        name for name, layout in decisions_of(module).kernel.layouts.items() if layout == "channels_last"
    }
    RaiseEmitPass("groups").apply(make_context(), module)
    run(AicfInferencePass("cpu:x86-64-v4", start="lowered").passes(), make_context(), module)
    after = {
        name for name, layout in decisions_of(module).kernel.layouts.items() if layout == "channels_last"
    }
    assert before and after == before


def between_transposes(outputs: int = 64) -> Graph:
    """A convolution as a framework of channels-last tensors exports it."""
    g = Graph("exported")
    x = g.transpose(g.input("x", (1, 32, 32, 8)), [0, 3, 1, 2])
    y = g.relu(g.conv(x, g.param("w", (outputs, 8, 1, 1)), name="c"))
    y = g.transpose(y, [0, 2, 3, 1], name="back")
    g.output(y, "y")
    return g


def test_a_copy_in_another_order_goes() -> None:
    module = compiled(between_transposes(), grouped=True)
    assert [op.id.data for op in module.walk() if isinstance(op, GroupOp)] == ["c"]
    (decision,) = told(module)
    assert decision.cost.data["transposes_saved"].value.data == 1
    assert decision.cost.data["chosen_us"].value.data < decision.cost.data["row_major_us"].value.data


def test_a_copy_that_the_policy_names_stays() -> None:
    module = compiled(between_transposes(), "{kernels: {y.copy: cpu.copy}}", grouped=True)
    assert len([op for op in module.walk() if isinstance(op, GroupOp)]) == 2


def test_two_results_share_no_memory() -> None:
    g = Graph("twice")
    y = g.conv(g.input("x", (1, 8, 32, 32)), g.param("w", (64, 8, 1, 1)), name="c")
    for name in ("y", "z"):
        g.output(g.transpose(y, [0, 2, 3, 1]), name)
    given = random_arrays(g.module(), "twice")
    wanted = run_program(g.module(), given)
    exe = built(g, LAST, given)
    found = exe.run({"x": given["x"]})
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * np.abs(value).max())
    assert not np.shares_memory(found["y"], found["z"])


def in_two_shapes() -> Graph:
    """One of two results of a group is computed of the other without a dimension."""
    g = Graph("squeezed")
    wide = g.input("x", (1, 3, 9, 1)) * 2.0
    g.output(g.reshape(g.relu(g.reshape(wide, (1, 3, 9))), (1, 3, 9, 1)), "z")
    g.output(g.conv(g.max_pool(wide, [2, 1]), g.param("w", (6, 3, 3, 1)), low=[1, 0]), "y")
    return g


def in_another_shape() -> Graph:
    """A result gets a dimension at the end of its group."""
    g = Graph("unsqueezed")
    likely = g.softmax(g.reshape(g.input("x", (2, 24, 4, 1)), (2, 24, 4)), 1)
    wide = g.max_pool(g.reshape(likely, (2, 24, 4, 1)), [2, 1])
    g.output(g.conv(wide, g.param("w", (6, 24, 3, 1)), low=[1, 0]), "y")
    return g


@pytest.mark.parametrize("build", [in_two_shapes, in_another_shape])
def test_reshapes_in_groups_that_give_channels_last(build: Callable[[], Graph]) -> None:
    graph = build()
    given = random_arrays(graph.module(), "reshapes")
    wanted = run_program(graph.module(), given)
    (decision,) = told(compiled(graph, LAST, grouped=True))
    assert decision.choice.data == "channels_last for 2 of 2 instructions"
    found = built(graph, LAST, given).run({"x": given["x"]})
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * np.abs(value).max())


def _norm_between_convolutions() -> Graph:
    graph = Graph("normed")
    x = graph.input("x", (2, 6, 9, 7), "f32")
    first = graph.param("first", (16, 6, 3, 3), "f32")
    second = graph.param("second", (4, 16, 3, 3), "f32")
    scale, bias = graph.param("scale", (16,), "f32"), graph.param("bias", (16,), "f32")
    normed = graph.silu(graph.group_norm(graph.conv(x, first, low=[1, 1], high=[1, 1]), scale, bias, 4, 1e-5))
    graph.output(graph.conv(normed, second, low=[1, 1], high=[1, 1]), "y")
    return graph


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_90a"])
def test_a_group_norm_lies_channels_last(target: str) -> None:
    """It reads and writes what the convolutions around it do, with groups and their channels innermost."""
    module = compiled(_norm_between_convolutions(), LAST, target)
    (decision,) = told(module)
    assert decision.choice.data.startswith("channels_last for 2 of 2")
    norm = next(op for op in module.walk() if isinstance(op, ResolvedOp) and op.kind.data == "generated")
    for value in (norm.ins[0], norm.outs[0]):
        type_ = buffer_of(value)
        assert (type_.get_shape(), type_.get_strides()) == ((2, 4, 4, 9, 7), (1008, 4, 1, 112, 16))
    assert set(decisions_of(module).kernel.layouts.values()) == {"row_major", "channels_last"}


def test_a_channels_last_group_norm_is_that_of_the_definition() -> None:
    graph = _norm_between_convolutions()
    given = random_arrays(graph.module(), "group norm")
    (wanted,) = run_program(graph.module(), given).values()
    for policy in (PLAIN, LAST):
        (found,) = built(graph, policy, given).run({"x": given["x"]}).values()
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def _phases_between_convolutions() -> Graph:
    graph = Graph("phases")
    x = graph.input("x", (2, 8, 6, 5), "f32")
    first = graph.param("first", (16, 8, 3, 3), "f32")
    back = graph.param("back", (16, 8, 3, 3), "f32")
    last = graph.param("last", (4, 8, 3, 3), "f32")
    inner = graph.relu(graph.conv(x, first, low=[1, 1], high=[1, 1]))
    inner = graph.conv_transpose(inner, back, strides=[2, 2], low=[1, 1], high=[1, 1], extra=[1, 1])
    graph.output(graph.conv(graph.relu(inner), last, low=[1, 1], high=[1, 1]), "y")
    return graph


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_90a"])
def test_interleaved_phases_lie_channels_last(target: str) -> None:
    """What gives six dims gives the four that are read, so that channels may be innermost."""
    module = compiled(_phases_between_convolutions(), LAST, target, grouped=True)
    groups = [op for op in module.walk() if isinstance(op, GroupOp)]
    shapes = [tensor_info(value.type).shape for group in groups for value in group.results]
    assert (2, 12, 10, 8) in shapes and max(map(len, shapes)) < 6


def test_channels_last_phases_are_those_of_the_definition() -> None:
    graph = _phases_between_convolutions()
    given = random_arrays(graph.module(), "phases")
    (wanted,) = run_program(graph.module(), given).values()
    for policy in (PLAIN, LAST):
        (found,) = built(graph, policy, given).run({"x": given["x"]}).values()
        assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_an_artifact_keeps_them(tmp_path: Path) -> None:
    graph = random_convnet(4)
    given = random_arrays(graph.module(), "artifact")
    exe = built(graph, LAST, given)
    exe.save(tmp_path / "net.aicf")
    again = aicf.load(tmp_path / "net.aicf")
    wanted, found = exe.run({"x": given["x"]}), again.run({"x": given["x"]})
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


def test_explain_tells_the_layout() -> None:
    graph = between_transposes()
    given = random_arrays(graph.module(), "explain")
    exe = built(graph, "auto", given)
    assert "channels_last for 1 of 1 instruction: predicted" in " ".join(str(exe.explain()).split())
    assert "1 transpose saved" in " ".join(str(exe.explain("back")).split())


def test_a_search_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_search, "BUDGET", 1)
    (decision,) = told(compiled(between_transposes(), grouped=True))
    assert decision.because.data.count("the search ended after 1 predictions") == 1


def test_what_kernels_cannot_do_is_an_error() -> None:
    g = Graph("flat")
    y = g.conv(g.input("x", (1, 8, 6, 6)), g.param("w", (8, 8, 3, 3)), name="c")
    g.output(g.matmul(g.reshape(y, (1, 128)), g.param("m", (128, 4))), "y")
    with pytest.raises(
        PolicyError, match="layouts.c: .* cannot run with it channels_last: .*; say row_major"
    ):
        compiled(g, "{layouts: {c: channels_last}}")
