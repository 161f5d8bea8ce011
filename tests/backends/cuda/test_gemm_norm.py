"""Products with a norm after them, without a GPU: what is legal and why not, records, prices, what code contains."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest
from xdsl.dialects.builtin import StringAttr

from aicf.backends.base import Launch
from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.gemm.norm.kernel import GemmNormKernel
from aicf.backends.cuda.families.gemm.wgmma.codegen import emit
from aicf.backends.cuda.families.gemm.wgmma.kernel import spec_of, task_of_work
from aicf.backends.cuda.families.gemm.wgmma.rows import meetings
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec, legal_specs, predicted_us, spec_reason
from aicf.backends.cuda.families.records import integers, read_shape
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.passes.fusion.patterns.fuse_norms import FuseNormsPass
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import SPILLS, listing, names_of, starting
from tests.gpu.programs import rows_normed
from tests.support.record_checks import record_reason

ARCH = ARCHES["sm_90a"]
KERNEL = GemmNormKernel()
TARGET = TargetAttr("cuda", "sm_90a")


def work(graph: Graph) -> Workload:
    """The product of `graph` with everything after it, as the passes would ask for it."""
    module = graph.module()
    for step in AicfInferencePass(target="reference:typed").passes():
        step.apply(make_context(), module)
        if isinstance(step, FuseNormsPass):
            break
    (group,) = (op for op in module.walk() if isinstance(op, GroupOp))
    found = workload_of(group).work
    assert found.kind == "gemm_norm"
    return found


NORMS: dict[str, Callable[[], Graph]] = {
    "layer_norm": partial(rows_normed, "f16", 1024, 768, 768, "layer_norm"),
    "rms_norm": partial(rows_normed, "bf16", 77, 1024, 136, "rms_norm"),
    "softmax": partial(rows_normed, "bf16", 1000, 330, 264, "softmax"),
    "kept": partial(rows_normed, "f16", 130, 512, 128, "layer_norm", keep=True),
    "one block": partial(rows_normed, "f16", 100, 51, 72, "softmax"),
    "gelu": partial(rows_normed, "f16", 300, 768, 128, "rms_norm", activation="gelu"),
    "long rows": partial(rows_normed, "f16", 256, 1536, 64, "layer_norm"),
}


@cache
def norm(name: str) -> Workload:
    """A work of the table."""
    return work(NORMS[name]())


def launch(job: Workload, spec: Spec | None = None) -> Launch:
    """The instruction of `job`, by `spec` or by what the prior prefers."""
    record = KERNEL.record(job, TARGET) if spec is None else KERNEL.record_of(job, TARGET, spec)
    return launch_of(job, KERNEL.id, record)


# What is legal


@pytest.mark.parametrize(
    ("graph", "target", "reason"),
    [
        (partial(rows_normed, "f16", 64, 64, 64, "softmax"), "sm_90", "need sm_90a"),
        (partial(rows_normed, "f32", 64, 64, 64, "softmax"), "sm_90a", "f16 and bf16"),
        (partial(rows_normed, "f16", 64, 64, 60, "softmax"), "sm_90a", "strides of whole 16 bytes"),
        (partial(rows_normed, "f16", 64, 2048, 64, "softmax"), "sm_90a", "a row of 2048 columns"),
    ],
)
def test_illegal_work_is_refused_with_the_reason(
    graph: Callable[[], Graph], target: str, reason: str
) -> None:
    """The architecture, the element type, what bulk tensor copies cannot read, and rows longer than a cluster."""
    assert reason in str(KERNEL.legal(work(graph()), TargetAttr("cuda", target)))


@pytest.mark.parametrize("name", NORMS)
def test_a_cluster_has_whole_rows(name: str) -> None:
    """Every variant: at most eight blocks side by side, one tile each, with all columns; registers are left over."""
    job = norm(name)
    assert KERNEL.legal(job, TARGET) is None
    task = task_of_work(job)
    listed = list(legal_specs(task, ARCH))
    assert listed
    for spec in listed:
        assert spec_reason(spec, task, ARCH) is None
        assert spec.cluster == spec.cluster_n <= 8 and spec.split_k == 1
        assert spec.cluster_n * spec.tile_n >= task.problem.n > (spec.cluster_n - 1) * spec.tile_n
        assert spec.sums <= 96
        assert spec.clusters(task, ARCH) == -(-task.problem.m // spec.tile_m)
        assert spec.shared_bytes(task) <= ARCH.shared_bytes


def test_more_than_a_cluster_is_refused() -> None:
    """Also where somebody else names the variant."""
    task = task_of_work(norm("long rows"))
    assert "more than a cluster holds" in str(spec_reason(Spec(64, 128, 2, cluster_n=12), task, ARCH))
    assert "too many for a cluster" in str(spec_reason(Spec(64, 128, 2, cluster_n=8), task, ARCH))


def test_records_hold_the_spec_and_the_order_of_sums() -> None:
    """Candidates give their specs back; blocks are named in the order only where there are several."""
    job = norm("layer_norm")
    records = KERNEL.variants(job, TARGET)
    assert records[0] == KERNEL.record(job, TARGET)
    assert {spec_of(record) for record in records} == set(legal_specs(task_of_work(job), ARCH))
    record = KERNEL.record_of(job, TARGET, Spec(64, 128, 8, cluster_n=6))
    shape = read_shape(record)
    assert shape.grid == (96, 1, 1) and shape.cluster == (6, 1, 1)
    assert record_reason(KERNEL, job, record, TARGET) is None
    stays = {**record, "grid": integers([48, 1, 1])}
    assert "its 'grid' is [48, 1, 1]" in str(record_reason(KERNEL, job, stays, TARGET))
    order = record["combination_order"]
    assert isinstance(order, StringAttr)
    assert order.data.endswith("4 threads by butterfly, 6 blocks ascending")
    (single, *_) = KERNEL.variants(norm("one block"), TARGET)
    assert "blocks" not in str(single["combination_order"])


@pytest.mark.parametrize(("columns", "width", "blocks"), [(768, 128, 6), (51, 64, 1), (1536, 192, 8)])
def test_rows_are_combined_in_one_order_whatever_their_number(columns: int, width: int, blocks: int) -> None:
    """For work that is batch-invariant, all variants have one width and with it one number of blocks."""
    orders: set[str] = set()
    for rows in (1, 64, 130, 4096):
        free = work(rows_normed("f16", rows, columns, 136, "layer_norm"))
        job = replace(free, batch_invariant=True)
        assert KERNEL.legal(job, TARGET) is None
        specs = [spec_of(record) for record in KERNEL.variants(job, TARGET)]
        assert {(spec.tile_n, spec.cluster_n, spec.split_k) for spec in specs} == {(width, blocks, 1)}
        assert {spec.tile_m for spec in specs} == ({64, 128} if rows > 64 and width != 192 else {64})
        orders.add(KERNEL.fixed_order(job, TARGET))
    assert len(orders) == 1 and f"{width} columns each" in orders.pop()


def test_what_is_legal_for_one_row_is_legal_for_all() -> None:
    """A single row of a length that no bulk copy steps over has no next one, unless there may be more."""
    free = work(rows_normed("f16", 1, 64, 64, "softmax"))
    a, *others = free.operands
    free = replace(free, operands=(replace(a, strides=(68, 1)), *others))
    assert KERNEL.legal(free, TARGET) is None
    assert "no lines for every batch" in str(KERNEL.legal(replace(free, batch_invariant=True), TARGET))


def test_only_a_lone_result_may_lie_on_the_residual() -> None:
    """A block reads a residual before it stores what is normed; what is stored before that may not lie on it."""
    residual = 3
    assert f"[[0 : i64, {residual} : i64]]" == str(KERNEL.record(norm("layer_norm"), TARGET)["may_alias"])
    assert str(KERNEL.record(norm("kept"), TARGET)["may_alias"]) == "[]"


def test_waves_of_rows_are_priced_as_measured() -> None:
    """Attention probabilities of 32 x 128 tokens, of which a block has whole rows: 39 us on an H100 (without what the
    residual here reads), for every wave of blocks starts, reads, divides and writes by itself."""
    job = work(rows_normed("bf16", 32 * 12 * 128, 128, 64, "softmax"))
    assert 30 < predicted_us(Spec(128, 128, 2), task_of_work(job), ARCH) < 60
    assert KERNEL.unfused_us(job, TARGET) < KERNEL.cost_us(job, TARGET)


@pytest.mark.parametrize(
    ("m", "k", "pays"),
    [(1024, 768, True), (1024, 3072, True), (128, 768, False), (128, 3072, False), (4096, 768, False)],
)
def test_prices_say_what_was_measured(m: int, k: int, pays: bool) -> None:
    """A layer_norm of 768 columns after a product: one kernel for about a thousand rows, two for few, where a product
    alone splits K, and for many, where it takes larger tiles."""
    job = work(rows_normed("f16", m, 768, k, "layer_norm"))
    assert (KERNEL.cost_us(job, TARGET) <= KERNEL.unfused_us(job, TARGET)) == pays


# What the code contains


def compiled(name: str, spec: Spec | None = None) -> tuple[KernelLaunch, str, list[str]]:
    """The launch of a work of the table, its listing and its instructions; it has no spills."""
    (made,) = emit(launch(norm(name), spec))
    assert isinstance(made, KernelLaunch)
    (cubin,) = compile_kernels([made.code], "sm_90a").values()
    lines = listing(cubin)
    names = names_of(lines)
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)
    return made, "\n".join(lines), names


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("layer_norm", Spec(64, 128, 8, cluster_n=6)),
        ("layer_norm", Spec(128, 128, 4, cluster_n=6)),
        ("layer_norm", Spec(64, 192, 4, cluster_n=4)),
        ("softmax", None),
        ("kept", None),
        ("one block", None),
    ],
)
def test_rows_stay_in_registers_and_blocks_meet_for_each_total(name: str, spec: Spec | None) -> None:
    """Warpgroup products out of bulk copies, no spills; a wait of the cluster for every phase with totals on both sides
    (producer and consumers), none where a block has whole rows."""
    made, sass, names = compiled(name, spec)
    job = norm(name)
    assert job.code is not None
    assert "HGMMA" in sass and "UTMALDG" in sass
    waits = sum(found.startswith("UCGABAR_WAIT") for found in names)
    if made.cluster[0] == 1:
        assert waits == 0
        return
    used = spec_of(launch(job, spec).record)
    # Both sides once for every total, and all once before the first (and after the last, where they share A).
    assert waits >= 2 * meetings(job.code) + 1
    assert ("UTMALDG.2D.MULTICAST" in sass) == (used.sharers > 1)
    assert re.search(r"\bST\.E|ST\.\S*|STAS", sass), "totals do not go to other blocks"
    assert len([found for found in names if found.startswith("SHFL.BFLY")]) >= 4
