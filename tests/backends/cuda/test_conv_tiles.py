"""`cuda.conv_mma`, `cuda.conv_mma_tf32` and `cuda.conv_simt` without a GPU: what is legal and why not, what records
hold, which thread loads what, what compiled code contains, and what simulated threads compute."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from functools import cache
from types import ModuleType

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr, UnitAttr

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.conv.mma import kernel as mma
from aicf.backends.cuda.families.conv.mma.kernel import ConvMmaKernel, ConvMmaTf32Kernel
from aicf.backends.cuda.families.conv.problem import windows_of
from aicf.backends.cuda.families.conv.simt import kernel as simt
from aicf.backends.cuda.families.conv.simt.kernel import ConvSimtKernel
from aicf.backends.cuda.families.conv.tiled_kernel import problem_of_work
from aicf.backends.cuda.families.conv.windows import k_order, tile_loads
from aicf.backends.cuda.families.gemm.mma.kernel import MmaSpec
from aicf.backends.cuda.target import ARCHES
from aicf.compilation.record import Options
from aicf.dialects.emit import PREPARE, GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, read_module
from aicf.tuning.candidates import grouped
from tests.backends.cuda import simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import SPILLS, opcodes, starting
from tests.backends.cuda.simulator import Memory
from tests.backends.cuda.tile_simulator import names
from tests.gpu.convolutions import Convolution, convolutions, drawn, flattened, image_layer
from tests.gpu.programs import random_arrays
from tests.support.random_graphs import run_program

TARGET = TargetAttr("cuda", "sm_90a")
MMA, TF32, SIMT = ConvMmaKernel(), ConvMmaTf32Kernel(), ConvSimtKernel()
POLICY = {"tf32": True}

_MODULES: list[ModuleOp] = []
"""Works hold parts of them, and go with them."""


def work_of(made: Convolution, dtype: str = "f16", **policy: object) -> Workload:
    """What kernels are asked to run: the group that holds the convolution."""
    options = Options("cuda:sm_90a", json.dumps({**POLICY, **policy}), "", 1)
    module = grouped(convolutions(dtype, [made]).module(), options, make_context(), lambda _: None)
    _MODULES.append(module)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (found,) = (work for work in works if work.kind == "conv")
    return replace(found, tf32=dtype == "f32", batch_invariant="determinism" in policy)


LAYER = image_layer(2, 64, 64, 14)
ROWS = image_layer(2, 64, 64, 14, last=False)
STEM = image_layer(1, 3, 64, 56, 7, 2, last=False)

# What is legal


def test_what_kernels_refuse_has_a_reason() -> None:
    """Types first; sizes that 32 bits do not hold."""
    work = work_of(LAYER)
    x, w, *rest = work.operands
    assert "it is" not in (MMA.legal(work, TARGET) or "")
    assert "tensor cores multiply f16 and bf16 here" in str(MMA.legal(work_of(LAYER, "f32"), TARGET))
    assert "only f32 is rounded to TF32" in str(TF32.legal(work, TARGET))
    unrounded = replace(work_of(LAYER, "f32"), tf32=False)
    assert "the policy has not allowed that" in str(TF32.legal(unrounded, TARGET))
    assert "it convolves f32 and f64" in str(SIMT.legal(work, TARGET))
    mixed = replace(work, operands=(x, replace(w, dtype="bf16"), *rest))
    assert "its weight bf16" in str(MMA.legal(mixed, TARGET))
    far = replace(work, operands=(replace(x, strides=(1 << 40, 1, 1 << 29, 64)), w, *rest))
    assert "2 GiB of its operand" in str(MMA.legal(far, TARGET))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(20))
def test_any_convolution_is_legal(seed: int) -> None:
    """Whatever its sizes, strides, groups and places in memory: on every architecture."""
    made = drawn(random.Random(1000 + seed), 1 << 30)
    for kernel, dtype in ((MMA, "bf16"), (TF32, "f32"), (SIMT, "f32"), (SIMT, "f64")):
        work = work_of(made, dtype)
        for arch in ARCHES:
            assert kernel.legal(work, TargetAttr("cuda", arch)) is None


# Records


def test_a_record_gives_its_decisions_back() -> None:
    """And holds the windows, so that a launch can be read."""
    work = work_of(LAYER)
    spec = MmaSpec(64, 64, 64, 2, 2, 1, 4, 2, "cluster", 2)
    record = MMA.record_of(work, TARGET, spec)
    assert MMA.read(work, record, TARGET) == spec
    assert MMA.checked_record(work, record, TARGET) == record
    assert record.items() >= windows_of(work).items()
    assert "channels innermost" in str(record["combination_order"])
    assert "elements of a row innermost" in str(MMA.record(work_of(STEM), TARGET)["combination_order"])
    assert TF32.record(work_of(LAYER, "f32"), TARGET)["math"] == StringAttr("tf32")


@pytest.mark.parametrize(("kernel", "dtype"), [(MMA, "f16"), (TF32, "f32"), (SIMT, "f32")])
def test_candidates_start_with_the_record_and_have_its_entries(
    kernel: ConvMmaKernel | ConvSimtKernel, dtype: str
) -> None:
    work = work_of(ROWS, dtype)
    found = kernel.variants(work, TARGET)
    assert found[0] == kernel.record(work, TARGET)
    assert all(record.keys() == found[0].keys() for record in found)
    assert len({str(record) for record in found}) == len(found) > 20


def test_weights_that_stay_are_packed_where_channels_are_innermost() -> None:
    """Others are read as they lie, after the kernels that write them."""
    record = MMA.record(work_of(LAYER), TARGET)
    layouts, early = record["layouts"], record["early_reads"]
    assert isinstance(layouts, ArrayAttr) and isinstance(early, ArrayAttr)
    assert [isinstance(layout, UnitAttr) for layout in layouts.data[:2]] == [True, False]
    assert [entry.value.data for entry in early if isinstance(entry, IntegerAttr)] == [1]
    given = MMA.record(work_of(replace(LAYER, is_param=False)), TARGET)
    assert "layouts" not in given and given["early_reads"] == ArrayAttr([])
    assert "layouts" not in MMA.record(work_of(STEM), TARGET), "rows of a window lie side by side"


def test_the_result_may_lie_on_a_residual() -> None:
    """The thread that reads an element stores it."""
    aliases = MMA.record(work_of(ROWS), TARGET)["may_alias"]
    assert isinstance(aliases, ArrayAttr) and len(aliases) == 1
    assert MMA.record(work_of(replace(ROWS, after="relu")), TARGET)["may_alias"] == ArrayAttr([])


def test_sums_have_one_order_in_every_batch() -> None:
    """Where the policy says batch_invariant, whatever the strides."""
    for kernel, dtype in ((MMA, "f16"), (TF32, "f32"), (SIMT, "f32")):
        works = [
            work_of(replace(made, batch=batch), dtype, determinism="batch_invariant")
            for made in (LAYER, ROWS)
            for batch in (1, 7, 256)
        ]
        assert len({kernel.fixed_order(work, TARGET) for work in works}) == 1
        for work in works:
            orders = {str(record["combination_order"]) for record in kernel.variants(work, TARGET)}
            assert len(orders) == 1


def test_elements_one_by_one_cost_more_than_whole_chunks() -> None:
    """So that layouts are worth choosing; and a split is worth it where images are small."""
    assert MMA.cost_us(work_of(ROWS), TARGET) > MMA.cost_us(work_of(LAYER), TARGET)
    assert MMA.schedule(work_of(image_layer(1, 512, 512, 7)), TARGET).split > 1


# K, and who loads what


def test_channels_fill_chunks_unless_rows_of_windows_do_better() -> None:
    """A stem has 3 channels, its windows rows of 7."""

    def along(made: Convolution, dtype: str = "f16") -> int | None:
        return k_order(problem_of_work(work_of(made, dtype))).run.dim

    assert along(LAYER) is None and along(STEM) == 1
    assert k_order(problem_of_work(work_of(STEM))).k == 3 * 7 * 8
    assert along(image_layer(1, 3, 64, 56, 3)) is None, "both waste as much"


@pytest.mark.parametrize("threads", [32, 64, 128, 256, 512])
@pytest.mark.parametrize("made", [LAYER, ROWS, STEM])
def test_threads_load_each_chunk_once(made: Convolution, threads: int) -> None:
    problem = problem_of_work(work_of(made))
    for rows in (16, 32, 48, 64, 96, 128):
        for k in (32, 64, 128):
            loads = tile_loads(problem, (rows, rows, k), threads)
            for own in () if loads is None else (loads.x, loads.weight):
                seen: Counter[tuple[int, int]] = Counter()
                for thread in range(threads):
                    across = own.row_step if own.down else own.chunks
                    slow, fast = divmod(thread, across)
                    row, chunk = (fast, slow) if own.down else (slow, fast)
                    for i in range(own.row_items):
                        for j in range(own.chunk_items):
                            place = row + i * own.row_step, chunk + j * own.chunk_step
                            if place[0] < own.rows and place[1] < own.chunks:
                                seen[place] += 1
                assert len(seen) == own.rows * own.chunks and set(seen.values()) == {1}


@pytest.mark.parametrize(
    ("made", "dtype", "widths"),
    [
        (LAYER, "f16", (16, 16)),
        (ROWS, "f16", (2, 16)),
        (ROWS, "f32", (4, 16)),
        (STEM, "f16", (2, 2)),
        (image_layer(1, 12, 24, 8), "f16", (8, 8)),
        (image_layer(1, 10, 24, 8), "f16", (4, 4)),
        (image_layer(1, 9, 24, 8), "f16", (2, 2)),
        (replace(LAYER, is_param=False), "f16", (16, 2)),
        (replace(LAYER, is_param=False, weight_last=True), "f16", (16, 16)),
    ],
)
def test_copies_are_as_wide_as_chunks_are_aligned(
    made: Convolution, dtype: str, widths: tuple[int, int]
) -> None:
    loads = tile_loads(problem_of_work(work_of(made, dtype)), (64, 64, 32), 128)
    assert loads is not None and (loads.x.width, loads.weight.width) == widths


# Compiled code


def emitted(
    made: Convolution, dtype: str, kernel: ConvMmaKernel | ConvSimtKernel, **changes: object
) -> list[tuple[KernelLaunch, Cubin]]:
    """The launches of a convolution, compiled; `changes` are those of the spec that is predicted to take least."""
    work = work_of(made, dtype)
    assert kernel.legal(work, TARGET) is None
    record = kernel.record_of(work, TARGET, replace(kernel.schedule(work, TARGET), **changes))
    launch = launch_of(work, kernel.id, record)
    layouts = record.get("layouts")
    if isinstance(layouts, ArrayAttr):
        ins = [
            ref if isinstance(layout, UnitAttr) else replace(ref, layout=layout)
            for ref, layout in zip(launch.ins, layouts.data, strict=True)
        ]
        launch = replace(launch, ins=tuple(ins))
    return compiled(emitter(kernel.id)(launch))


LARGE = {"bm": 128, "bn": 64, "bk": 64, "warps_m": 4, "warps_n": 2, "warps_k": 1, "stages": 3, "split": 1}


def test_whole_chunks_are_copied_asynchronously() -> None:
    ((launch, cubin),) = emitted(image_layer(8, 64, 64, 56), "f16", MMA, **LARGE, through="none")
    found = opcodes(cubin)
    assert launch.grid == (8 * 56 * 56 // 128, 1, 1)
    assert cubin.stack_bytes == 0 and not starting(found, SPILLS)
    # A thread has 4 chunks of pixels and 2 of outputs, for each of the two first stages and in the loop.
    assert found["LDGSTS"] == 3 * (4 + 2) and found["HMMA"] == 4 * 2 * 4 and found["LDSM"] == 4 * 4


def test_single_elements_are_loaded_before_the_products_of_a_stage() -> None:
    """And stored after them: their latency is hidden."""
    ((_, cubin),) = emitted(
        image_layer(8, 64, 64, 56, last=False), "f16", MMA, **LARGE | {"bk": 32}, through="none"
    )
    found = opcodes(cubin)
    assert cubin.stack_bytes == 0 and not starting(found, SPILLS)
    assert found["LDG"] >= 2 * 16 and found["HMMA"] == 2 * 2 * 4


@pytest.mark.parametrize("last", [True, False])
def test_f32_is_copied_asynchronously_wherever_it_lies(last: bool) -> None:
    ((_, cubin),) = emitted(
        image_layer(8, 64, 64, 56, last=last), "f32", TF32, **LARGE | {"bk": 32}, through="none"
    )
    found = opcodes(cubin)
    assert cubin.stack_bytes == 0 and not starting(found, SPILLS)
    assert found["LDGSTS"] == 3 * ((4 if last else 16) + 2) and found["HMMA"] > 0


def test_small_images_share_k_among_blocks() -> None:
    """Through a workspace, whose parts a second launch adds."""
    parts = emitted(image_layer(1, 512, 512, 7), "f16", MMA, split=8, through="workspace")
    assert [launch.code.name.split("_f16")[0] for launch, _ in parts] == ["conv_mma", "add_parts"]
    assert all(cubin.stack_bytes == 0 for _, cubin in parts)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_outside_tensor_cores_products_are_fused_multiply_adds(dtype: str) -> None:
    ((_, cubin),) = emitted(image_layer(8, 64, 64, 56), dtype, SIMT)
    found = opcodes(cubin)
    assert cubin.stack_bytes == 0 and not starting(found, SPILLS)
    assert found["FFMA" if dtype == "f32" else "DFMA"] >= 256 and found["LDGSTS"] > 0


# What simulated threads compute


def simulated(plan: CapturePlan, module: ModuleOp, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, or what `@prepare` derives, every byte of them."""
    binds = plan.graph.binds
    written = "derived" if plan.name == PREPARE else "output"
    memory = Memory([max(16, plan.arena_bytes), *(bind.nbytes for bind in binds)])
    for base, bind in enumerate(binds, 1):
        if bind.value is not None:
            memory.fill(base, np.frombuffer(bytes.fromhex(bind.value), np.uint8))
        elif bind.role != written:
            memory.fill(base, inputs[bind.name])
    (unit,) = (unit for unit in code_units(module) if unit.entry == plan.entry)
    for launch in unit.launches:
        made = emitter(launch.kernel)(launch)
        simulator.run([each for each in made if isinstance(each, KernelLaunch)], memory, names)
    found: dict[str, np.ndarray] = {}
    for base, bind in enumerate(binds, 1):
        if bind.role == written:
            assert memory.written[base].all(), f"all of {bind.name} is written"
            values = memory.buffers[base].view(element_named(bind.dtype).dtype)
            found[bind.name] = values.reshape(bind.shape)
    return found


def _pick_any_spec(family: ModuleType, seed: int, patch: pytest.MonkeyPatch) -> None:
    """Lets the family prefer a spec that `seed` draws: a tile first, then one of its depths, stages and splits."""
    ranked, source = family.ranked_specs, random.Random(seed)

    @cache
    def drawn_first(*arguments: object) -> tuple[tuple[float, object], ...]:
        found = ranked(*arguments)
        if not found:
            return found
        by_tile: dict[tuple[int, ...], list[tuple[float, object]]] = {}
        for each in found:
            spec = each[1]
            by_tile.setdefault((spec.bm, spec.bn, spec.threads, spec.split), []).append(each)
        first = source.choice(by_tile[source.choice(sorted(by_tile))])
        return first, *(each for each in found if each is not first)

    patch.setattr(family, "ranked_specs", drawn_first)


CASES = [
    *((mma, MMA.id, "f16", seed) for seed in range(12)),
    *((mma, MMA.id, "bf16", seed) for seed in range(12, 24)),
    *((mma, TF32.id, "f32", seed) for seed in range(24, 36)),
    *((simt, SIMT.id, ("f32", "f64")[seed % 2], seed) for seed in range(36, 48)),
]
EXACT = {"f16": 1e-3, "bf16": 8e-3, "f32": 4e-6, "f64": 1e-13}


@pytest.mark.drawn
@pytest.mark.parametrize(("family", "kernel", "dtype", "seed"), CASES)
def test_any_spec_convolves_anything(
    family: ModuleType, kernel: str, dtype: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random convolutions by random specs, in the memory that the plan gives: no access reaches out of an operand."""
    _pick_any_spec(family, seed, monkeypatch)
    made = drawn(random.Random(seed), 100_000)
    assert_convolved(convolutions(dtype, [made]), kernel, dtype, seed)


@pytest.mark.parametrize(("kernel", "dtype"), [(MMA.id, "f16"), (SIMT.id, "f32")])
@pytest.mark.parametrize("groups", [1, 4])
def test_what_follows_may_have_fewer_dimensions(kernel: str, dtype: str, groups: int) -> None:
    assert_convolved(flattened(dtype, groups), kernel, dtype, 0)


def assert_convolved(graph: Graph, kernel: str, dtype: str, seed: int) -> None:
    """Runs a program for cuda on simulated threads, its convolutions by `kernel`."""
    module = graph.module()
    arrays = random_arrays(module, f"convolution {seed}")
    if kernel == TF32.id:
        for array in arrays.values():
            array.view(np.uint32)[...] &= np.uint32(0xFFFFE000)
    wanted, typed = run_program(module, arrays), run_program(module, arrays, "typed")
    policy = json.dumps({"kernels": {"conv": kernel}, "tf32": kernel == TF32.id})
    AicfInferencePass("cuda:sm_90a", policy=policy).apply(make_context(), module)
    program = read_module(module)
    (plan,) = program.programs
    assert kernel in {launch.kernel for launch in plan.launches}
    if program.prepare is not None:
        arrays = arrays | simulated(program.prepare, module, arrays)
    found = simulated(plan, module, arrays)
    for name, exact in wanted.items():
        scale = np.abs(exact) + np.sqrt(np.mean(exact**2)) + np.finfo(np.float64).tiny
        rounded = np.max(np.abs(typed[name].astype(np.float64) - exact) / scale)
        off = np.max(np.abs(found[name].astype(np.float64) - exact) / scale)
        assert off <= max(EXACT[dtype], 3 * rounded), name
