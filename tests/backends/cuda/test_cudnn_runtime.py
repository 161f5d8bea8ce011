"""Calls of cuDNN as far as they go without a GPU: plans as text, what is offered, prepared, refused, and in which order
the frontend is called. The frontend is a fake; the numbers are tested on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.families.library import heuristic
from aicf.backends.cuda.runtime import library
from aicf.backends.cuda.runtime.cudnn import calls, graphs, plans
from aicf.backends.cuda.runtime.device_program import Address, LibraryNode
from aicf.backends.registry import resolve_target, target_spec
from aicf.errors import ArtifactError, BackendUnavailable, PolicyError
from aicf.support.extras import install
from tests.backends.cuda.fake_cudnn import Frontend, Knob, Note, Plan
from tests.gpu.convolutions import convolutions, image_layer

VERSION = "9.19.1"
GOOD = Plan(10, {Knob.STAGES: 3, Knob.TILE_SIZE: 5}, 128)
OTHER = Plan(41, {Knob.STAGES: 2})


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Frontend]:
    """A machine with cuDNN and its frontend."""
    fake = Frontend([GOOD, OTHER])
    monkeypatch.setattr(graphs, "frontend", lambda: fake)
    monkeypatch.setattr(plans, "frontend", lambda: fake)
    monkeypatch.setattr(calls, "frontend", lambda: fake)
    yield fake
    opened, closed = (sum(entry[0] == what for entry in fake.told) for what in ("create", "destroy"))
    assert opened == closed


def tensor(*sizes: int) -> dict[str, object]:
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return {"sizes": list(sizes), "strides": strides}


CONVOLUTION: dict[str, object] = {
    "dtype": "f16",
    "barred_notes": ["NONDETERMINISTIC"],
    "algorithm": "eng10 STAGES=3 TILE_SIZE=5",
    "workspace_bytes": 128,
    "operands": ["x", "weight", "bias", "y", "workspace"],
    "x": tensor(1, 8, 4, 4),
    "weight": tensor(16, 8, 3, 3),
    "y": tensor(1, 16, 4, 4),
    "residual": [],
    "bias": [tensor(1, 16, 1, 1)],
    "strides": [1, 1],
    "dilations": [1, 1],
    "low": [1, 1],
    "high": [1, 1],
    "activation": "silu",
}
ATTENTION: dict[str, object] = {
    "dtype": "bf16",
    "barred_notes": [],
    "algorithm": "eng41 STAGES=2",
    "workspace_bytes": 0,
    "operands": ["q", "k", "v", "y"],
    **{name: tensor(2, 3, 5, 8) for name in "qkvy"},
    "scale": 0.25,
    "mask": "bottom_right",
}


def node(function: str, call: dict[str, object], **changes: object) -> LibraryNode:
    operands = call["operands"]
    assert isinstance(operands, list)
    addresses = tuple(Address(index, 0) for index in range(len(operands)))  # type: ignore[arg-type]
    return LibraryNode("c", function, VERSION, {**call, **changes}, addresses)


CONV_NODE, ATTENTION_NODE = node("cudnn.convolution", CONVOLUTION), node("cudnn.attention", ATTENTION)


# Graphs


def test_a_convolution_is_one_graph_with_its_epilogue(cudnn: Frontend) -> None:
    """Uids are the numbers of the addresses; values between are f32, and what is computed in is f32."""
    handle = calls.open_handle()
    calls.prepare(handle, CONV_NODE)
    (graph,) = cudnn.graphs
    assert graph.given["io_data_type"] is cudnn.data_type.HALF
    assert graph.given["intermediate_data_type"] is graph.given["compute_data_type"] is cudnn.data_type.FLOAT
    assert [(each.given["name"], each.given["uid"]) for each in graph.tensors] == [
        ("x", 1),
        ("weight", 2),
        ("bias", 3),
    ]
    assert [name for name, _ in graph.operations] == [
        "conv_fprop",
        "bias",
        "swish",
        "validate",
        "build_operation_graph",
    ]
    assert graph.operations[0][1]["pre_padding"] == graph.operations[0][1]["post_padding"] == [1, 1]
    calls.close_handle(handle)


def test_a_causal_mask_names_its_diagonal(cudnn: Frontend) -> None:
    handle = calls.open_handle()
    calls.prepare(handle, ATTENTION_NODE)
    ((name, given), *_) = cudnn.graphs[0].operations
    assert name == "sdpa" and given["attn_scale"] == 0.25 and given["generate_stats"] is False
    assert given["diagonal_alignment"] is cudnn.diagonal_alignment.BOTTOM_RIGHT
    assert given["diagonal_band_right_bound"] == 0
    calls.prepare(handle, node("cudnn.attention", ATTENTION, mask="none"))
    assert "diagonal_alignment" not in cudnn.graphs[1].operations[0][1]
    calls.close_handle(handle)


# Calls


def test_plans_are_built_before_and_calls_only_queue(cudnn: Frontend) -> None:
    """One plan for calls that are alike; each on its stream, under the handle, with addresses by uid."""
    handle = calls.open_handle()
    for _ in range(2):
        calls.prepare(handle, CONV_NODE)
    assert cudnn.builds == 1
    calls.call(handle, CONV_NODE, (100, 200, 300, 400, 500), 7)
    calls.call(handle, CONV_NODE, (101, 201, 301, 401, 501), 8)
    assert cudnn.builds == 1 and len(cudnn.graphs) == 1
    calls.prepare(handle, ATTENTION_NODE)
    calls.call(handle, ATTENTION_NODE, (1, 2, 3, 4), 7)
    calls.close_handle(handle)
    assert cudnn.told == [
        ("create",),
        ("stream", 7, "handle"),
        ("execute", {1: 100, 2: 200, 3: 300, 4: 400}, 500, "handle"),
        ("stream", 8, "handle"),
        ("execute", {1: 101, 2: 201, 3: 301, 4: 401}, 501, "handle"),
        ("stream", 7, "handle"),
        ("execute", {1: 1, 2: 2, 3: 3, 4: 4}, 0, "handle"),
        ("destroy", "handle"),
    ]
    assert not handle.graphs


def test_a_plan_that_does_what_is_barred_is_refused(cudnn: Frontend) -> None:
    """Even if an edited record names it."""
    cudnn.plans = [replace(GOOD, note=Note.NONDETERMINISTIC)]
    handle = calls.open_handle()
    with pytest.raises(BackendUnavailable, match="cudnn: the plan of instruction 'c' failed: cudnnGraphNot"):
        calls.prepare(handle, CONV_NODE)
    calls.close_handle(handle)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("", "'' is no plan of cudnn, such as 'eng10 STAGES=3'; compile it again"),
        ("eng10 STAGES=3 ", "'eng10 STAGES=3 ' is no plan of cudnn"),
        ("eng10 WARPS=3", "cudnn has no knob 'WARPS', which the plan 'eng10 WARPS=3' sets; compile it again"),
    ],
)
def test_a_text_that_is_no_plan_is_refused(cudnn: Frontend, algorithm: str, message: str) -> None:
    handle = calls.open_handle()
    with pytest.raises(ArtifactError) as error:
        calls.prepare(handle, node("cudnn.convolution", CONVOLUTION, algorithm=algorithm))
    assert message in error.value.message
    calls.close_handle(handle)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (node("cudnn.pooling", CONVOLUTION), "calls the unknown function cudnn.pooling; use a newer aicf"),
        (node("cudnn.convolution", CONVOLUTION, dtype="f64"), "dtype 'f64' is none of f16, bf16, f32"),
        (
            node("cudnn.convolution", CONVOLUTION, activation="mish"),
            "activation 'mish' is none of none, relu",
        ),
        (node("cudnn.attention", ATTENTION, mask="left"), "mask 'left' is none of none, top_left"),
        (node("cudnn.attention", ATTENTION, scale="1"), "the call of instruction 'c'.scale"),
        (node("cudnn.attention", CONVOLUTION), "the call of instruction 'c' "),
    ],
)
def test_a_call_of_another_release_is_refused(cudnn: Frontend, made: LibraryNode, message: str) -> None:
    handle = calls.open_handle()
    with pytest.raises(ArtifactError) as error:
        calls.prepare(handle, made)
    assert message in error.value.message and "\n" not in error.value.message
    calls.close_handle(handle)


# Offers


def test_only_plans_that_can_be_built_again_are_offered(cudnn: Frontend) -> None:
    """Not those with knobs that have no name, of the frontend's own engines, that are barred, that do not build, or
    that need more room than there is."""
    cudnn.plans = [
        replace(GOOD, knobs={Knob.NOT_SET: 1}),
        replace(GOOD, name="sdpa_in_python[TILE_M=128]"),
        replace(GOOD, note=Note.NONDETERMINISTIC),
        replace(GOOD, builds=False),
        replace(GOOD, workspace=129),
        GOOD,
        OTHER,
    ]
    handle = calls.open_handle()
    found = calls.offers(handle, node("cudnn.convolution", CONVOLUTION, algorithm=""), 8)
    assert [(offer.algorithm, offer.workspace_bytes) for offer in found] == [
        ("eng10 STAGES=3 TILE_SIZE=5", 128),
        ("eng41 STAGES=2", 0),
    ]
    assert [plans.read_plan(offer.label) for offer in found] == [
        (each.engine, each.knobs) for each in (GOOD, OTHER)
    ]
    calls.close_handle(handle)


def test_no_more_is_built_than_asked_for(cudnn: Frontend) -> None:
    handle = calls.open_handle()
    assert len(calls.offers(handle, CONV_NODE, 1)) == 1 and cudnn.builds == 1
    cudnn.plans = []
    assert calls.offers(handle, CONV_NODE, 1) == []
    calls.close_handle(handle)


# What is missing


def test_versions_are_written_as_people_write_them(cudnn: Frontend) -> None:
    assert calls.version() == VERSION


def test_without_the_frontend_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    graphs.frontend.cache_clear()
    with pytest.raises(BackendUnavailable) as error:
        calls.version()
    assert error.value.message.startswith("cudnn is called through nvidia-cudnn-frontend: ")
    assert error.value.message.endswith(install("cudnn")) and "\n" not in error.value.message
    assert "cudnn" not in library.installed()


def test_without_the_library_itself_the_frontends_reason_is_told(
    cudnn: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> int:
        raise RuntimeError("Unable to find symbol\ncudnnGetVersion")

    monkeypatch.setattr(cudnn, "backend_version", missing)
    with pytest.raises(BackendUnavailable) as error:
        calls.version()
    assert error.value.message.startswith(
        "cudnn: loading the library failed: RuntimeError: Unable to find symbol cudnnGetVersion; "
    )


def test_another_version_is_refused() -> None:
    with pytest.raises(BackendUnavailable) as error:
        library.check_version(CONV_NODE, "9.20.0")
    assert error.value.message == (
        "instruction 'c' was compiled for cudnn 9.19.1, here is 9.20.0: algorithms are valid for one version; "
        "pip install 'nvidia-cudnn-cu13==9.19.1.*', or run aicf tune here and compile again"
    )


# A compile


HERE = f"cuda:sm_90a+cudnn={VERSION}"
KERNEL = "cuda.conv_cudnn"


class _Device:
    def enter(self) -> None:
        """Makes its context current."""


@pytest.fixture
def machine(cudnn: Frontend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Frontend]:
    """With an sm_90a."""
    cudnn.numerical_note = Enum("Notes", list(_ALL_NOTES))
    monkeypatch.setattr(heuristic, "CudaDevice", _Device)
    monkeypatch.setattr(heuristic, "host_arch", lambda: "sm_90a")
    heuristic.first_offered.cache_clear()
    yield cudnn
    heuristic.first_offered.cache_clear()


_ALL_NOTES = (
    *("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION", "DOWN_CONVERT_INPUTS", "FFT", "WINOGRAD"),
    *("WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13", "TENSOR_CORE"),
)


def compiled(target: str, **policy: Any) -> aicf.CompiledModel:
    made = convolutions("f16", [image_layer(1, 32, 32, 14, after="relu")])
    wanted = aicf.KernelPolicy(layouts={"*": "channels_last"}, **policy)
    weights = {"w_c0": np.zeros((32, 32, 3, 3), np.float16), "b_c0": np.zeros(32, np.float16)}
    return aicf.compile(made, weights, target, policy=wanted)


def chosen(model: aicf.CompiledModel) -> Any:
    """What the ledger has of the one convolution."""
    (found,) = [each for each in model.decisions if each.made_by == "select-kernels"]
    return found


def test_the_plan_becomes_part_of_the_record(machine: Frontend) -> None:
    model = compiled(HERE, conv="cudnn")
    decision = chosen(model)
    assert decision.choice == KERNEL
    assert decision.because == (
        "policy prefers cudnn (conv); what only the device knows is what its library proposed"
    )
    text = model.ir("emit")
    assert 'algorithm = "eng10 STAGES=3 TILE_SIZE=5", library = "9.19.1", workspace_bytes = 128' in text
    assert f"cudnn={VERSION}" in target_spec(resolve_target(HERE))


def test_a_pinned_kernel_that_the_library_does_not_offer_is_an_error(machine: Frontend) -> None:
    machine.plans = []
    decision = chosen(compiled(HERE, conv="cudnn"))
    assert decision.choice != KERNEL
    assert "the library's heuristic offers no algorithm for it" in decision.rejected[KERNEL]
    with pytest.raises(PolicyError, match=f"'{KERNEL}' cannot run it: unmeasured"):
        compiled(HERE, kernels={"conv": KERNEL})


def test_nothing_is_asked_if_the_policy_leaves_the_choice_open(machine: Frontend) -> None:
    assert chosen(compiled(HERE)).rejected[KERNEL] == "unmeasured: run aicf tune"
    assert not machine.graphs
