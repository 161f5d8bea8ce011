"""Floats of 8 bits on cuda without a GPU: conversions of both kinds, what products are legal, what compiled code
contains, and what simulated threads compute."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, StringAttr

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.ptx import float8
from aicf.backends.cuda.families.gemm.mma import kernel as mma
from aicf.backends.cuda.families.gemm.mma.codegen import emit as emit_mma
from aicf.backends.cuda.families.gemm.mma.kernel import MmaFloat8Kernel, MmaSpec
from aicf.backends.cuda.families.gemm.wgmma import kernel as wgmma
from aicf.backends.cuda.families.gemm.wgmma.codegen import emit as emit_wgmma
from aicf.backends.cuda.families.gemm.wgmma.kernel import WgmmaFloat8Kernel
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units
from tests.backends.cuda import wgmma_simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.integer_simulator import run as run_tiles
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.wgmma_programs import work
from tests.gpu.fp8 import AFTER, FLOAT8, TYPES, float8_casts, float8_gated, float8_product, float8_projections
from tests.gpu.programs import random_arrays
from tests.support.random_graphs import run_program

Array = NDArray[Any]
TARGET = TargetAttr("cuda", "sm_90a")
MMA, WGMMA = MmaFloat8Kernel(), WgmmaFloat8Kernel()
KINDS = ("gemm", "gemm_epilogue", "gemm_gated", "gemm_multi")


# Conversions by arithmetic, which no GPU of the tests needs: their PTX on NumPy


def interpreted(body: str, results: int, arguments: list[Array]) -> list[Array]:
    """Runs straight PTX on arrays of words, one for each of many numbers."""
    count = arguments[0].shape
    registers: dict[str, Array] = {f"${results + i}": values for i, values in enumerate(arguments)}

    def read(name: str) -> Array:
        if name in registers:
            return registers[name]
        bits = int(name[2:], 16) if name.startswith("0f") else int(name, 0)
        return np.uint32(bits & 0xFFFFFFFF)

    def real(name: str) -> Array:
        return np.asarray(read(name), np.uint32).view(np.float32)

    def halves(name: str) -> Array:
        return np.asarray(read(name)).astype(np.uint16).view(np.float16)

    floats = {
        "add.f32": lambda a, b: real(a) + real(b),
        "mul.f32": lambda a, b: real(a) * real(b),
        "cvt.f32.f16": lambda a: halves(a).astype(np.float32),
    }

    def permuted(a: str, b: str, selector: str) -> Array:
        """Bytes of both words, those of the first are 0 to 3."""
        found = np.zeros_like(read(a))
        for place in range(4):
            source = int(selector, 16) >> 4 * place & 7
            byte = read(a if source < 4 else b) >> np.uint32(8 * (source % 4)) & np.uint32(0xFF)
            found = found | byte << np.uint32(8 * place)
        return found

    def pairs_multiplied(a: str, b: str) -> Array:
        x, y = (np.ascontiguousarray(np.broadcast_to(read(each), count), np.uint32) for each in (a, b))
        return (x.view(np.float16) * y.view(np.float16)).view(np.uint32)

    words = {
        "mov.b32": read,
        "and.b32": lambda a, b: read(a) & read(b),
        "or.b32": lambda a, b: read(a) | read(b),
        "add.u32": lambda a, b: read(a) + read(b),
        "sub.u32": lambda a, b: read(a) - read(b),
        "min.u32": lambda a, b: np.minimum(read(a), read(b)),
        "shl.b32": lambda a, b: read(a) << read(b),
        "shr.u32": lambda a, b: read(a) >> read(b),
        "prmt.b32": permuted,
        "mul.rn.f16x2": pairs_multiplied,
        "bfe.u32": lambda a, start, size: (read(a) >> read(start)) & np.uint32((1 << int(size)) - 1),
        "setp.lt.u32": lambda a, b: read(a) < read(b),
        "setp.gt.u32": lambda a, b: read(a) > read(b),
        "setp.eq.u32": lambda a, b: read(a) == read(b),
        "selp.b32": lambda a, b, p: np.where(registers[p], read(a), read(b)),
        "cvt.u16.u32": lambda a: read(a) & np.uint32(0xFFFF),
        "cvt.u32.u16": read,
    }
    for line in filter(None, (line.strip() for line in body.split(";"))):
        name, _, rest = line.partition(" ")
        if name == ".reg":
            continue
        target, *sources = re.split(r"\s*,\s*", rest)
        if name in floats:
            with np.errstate(all="ignore"):
                registers[target] = np.asarray(floats[name](*sources), np.float32).view(np.uint32)
        else:
            registers[target] = words[name](*sources)
    return [np.asarray(registers[f"${i}"]) for i in range(results)]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_older_gpus_convert_every_number(dtype: str) -> None:
    """All numbers of 8 bits, and f32 around each of them, the middles between them, and the ends."""
    kind, bodies = element_named(dtype).dtype, float8.by_arithmetic(dtype)
    every = np.arange(256, dtype=np.uint32)
    with np.errstate(all="ignore"):
        exact = every.astype(np.uint8).view(kind).astype(np.float32)
    (wide,) = interpreted(bodies[f"{dtype}_to_f32"][0], 1, [every])
    np.testing.assert_array_equal(wide.view(np.float32), exact)
    both = interpreted(bodies[f"unpack_{dtype}"][0], 2, [every | every[::-1] << np.uint32(8)])
    np.testing.assert_array_equal(both[0].view(np.float32), exact)
    np.testing.assert_array_equal(both[1].view(np.float32), exact[::-1])
    words = np.random.default_rng(1).integers(0, 1 << 32, 4096, np.uint32)
    pairs = np.stack(interpreted(bodies[f"halves_of_{dtype}"][0], 2, [words]), 1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            np.ascontiguousarray(pairs).view(np.float16).astype(np.float32),
            exact[words.view(np.uint8)].reshape(-1, 4),
        )
    x = hard_numbers(exact)
    with np.errstate(all="ignore"):
        wanted = x.astype(kind)
    (found,) = interpreted(bodies[f"f32_to_{dtype}"][0], 1, [x.view(np.uint32)])
    same_numbers(found.astype(np.uint8).view(kind), wanted)
    (both,) = interpreted(bodies[f"pack_{dtype}"][0], 1, [x.view(np.uint32), x[::-1].view(np.uint32)])
    same_numbers((both & 0xFF).astype(np.uint8).view(kind), wanted)
    same_numbers((both >> 8).astype(np.uint8).view(kind), wanted[::-1])


def hard_numbers(exact: Array) -> Array:
    """f32 that are hard to round to some numbers."""
    finite = np.sort(exact[np.isfinite(exact)])
    middles = (finite[1:] + finite[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(way)) for way in (-np.inf, np.inf)]
    top = finite[-1]
    ends = np.float32([np.inf, -np.inf, np.nan, 1e30, 464, 465, 480, 61439, 61440, -0.0, 1e-40, top * 1.1])
    drawn = np.random.default_rng(2).integers(0, 1 << 32, 4096, np.uint32).view(np.float32)
    return np.concatenate([finite, middles, *beside, ends, drawn]).astype(np.float32)


def same_numbers(found: Array, wanted: Array) -> None:
    """Bit for bit, but for which NaN it is."""
    with np.errstate(all="ignore"):
        is_nan = np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), is_nan)
    np.testing.assert_array_equal(found.view(np.uint8)[~is_nan], wanted.view(np.uint8)[~is_nan])


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_89", "sm_80"])
def test_conversions_are_instructions_from_sm_89_on(arch: str, dtype: str) -> None:
    module = float8_casts(dtype).module()
    AicfInferencePass(f"cuda:{arch}").apply(make_context(), module)
    launches = [launch for unit in code_units(module) for launch in unit.launches]
    cubins = [cubin for launch in launches for _, cubin in compiled(emitter(launch.kernel)(launch), arch)]
    names = [name for cubin in cubins for name in instructions(cubin)]
    converting = [name for name in names if name.startswith("F2FP") and dtype[2:6] in name]
    assert bool(converting) == (arch != "sm_80")
    assert all(cubin.stack_bytes == 0 for cubin in cubins)


# What is legal


def floats(
    m: int,
    n: int,
    k: int,
    types: tuple[str, str] = (FLOAT8[0], FLOAT8[0]),
    result: str = "f32",
    **options: Any,
) -> Workload:
    """A product of floats of 8 bits."""
    made = work(m, n, k, dtype=types[0], result=result, **options)
    a, b, *others = made.operands
    return replace(made, operands=(a, replace(b, dtype=types[1]), *others))


@pytest.mark.parametrize("types", TYPES)
def test_all_pairs_of_types_are_legal(types: tuple[str, str]) -> None:
    for arch in ("sm_80", "sm_89", "sm_90a"):
        assert MMA.legal(floats(77, 99, 132, types), TargetAttr("cuda", arch)) is None
    assert WGMMA.legal(floats(100, 72, 144, types), TARGET) is None
    for kernel in (MMA, WGMMA):
        assert kernel.record(floats(64, 64, 64, types), TARGET)["math"] == StringAttr("_".join(types))


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (work(64, 64, 64, dtype="f16"), "it multiplies f8E4M3FN and f8E5M2, the operands are f16 and f16"),
        (floats(64, 64, 64, (FLOAT8[0], "i8")), "the operands are f8E4M3FN and i8"),
        (floats(64, 64, 64, result="f16"), "in f32, its sums are f16"),
        (floats(64, 64, 64, transpose_a=True), "A lies along M"),
        (floats(64, 64, 64, transpose_b=False, b_role="temp"), "B lies along N"),
    ],
)
def test_legality_says_why_not(job: Workload, reason: str) -> None:
    assert reason in str(MMA.legal(job, TARGET)) and reason in str(WGMMA.legal(job, TARGET))


def test_products_without_a_kernel_are_those_of_f32() -> None:
    """Of lines that begin anywhere."""
    module = float8_product(TYPES[1], 16, 32, 63).module()
    AicfInferencePass("cuda:sm_90a").apply(make_context(), module)
    kernels = {launch.kernel for unit in code_units(module) for launch in unit.launches}
    assert kernels & {"cuda.gemm_simt", "cuda.gemv"} and not kernels & {MMA.id, WGMMA.id}


def test_strict_rounding_needs_whole_sums() -> None:
    """Those of halves are: warps of Hopper and of older GPUs multiply them."""
    strict, reason = (
        replace(floats(256, 256, 256), rounding="strict"),
        "keep fewer bits than f32 has of a sum",
    )
    assert reason in str(WGMMA.legal(strict, TARGET)) and MMA.legal(strict, TARGET) is None
    assert reason in str(MMA.legal(strict, TargetAttr("cuda", "sm_89")))
    assert MMA.legal(strict, TargetAttr("cuda", "sm_80")) is None


def test_a_warp_of_hopper_multiplies_no_faster_than_halves() -> None:
    """Its warpgroups do, and so do warps of sm_89."""
    halves, own = work(4096, 4096, 4096, dtype="f16"), floats(4096, 4096, 4096)
    ada = TargetAttr("cuda", "sm_89")
    assert MMA.cost_us(own, TARGET) > 0.9 * mma.MmaKernel().cost_us(halves, TARGET)
    assert MMA.cost_us(own, ada) < 0.6 * mma.MmaKernel().cost_us(halves, ada)
    assert WGMMA.cost_us(own, TARGET) < 0.6 * wgmma.WgmmaKernel().cost_us(halves, TARGET)


# What compiled code contains


@pytest.mark.parametrize("types", TYPES)
def test_warps_multiply_them_or_the_halves_that_they_are(types: tuple[str, str]) -> None:
    """By instructions of their own on sm_89. Each operand of a tile is converted once, not for every product."""
    job, spec = floats(256, 256, 1024, types), MmaSpec(128, 128, 128, 2, 2, 1, 3)
    steps, tiles, registers = 128 // 32, 4 * 8, 4 * 4 + 8 * 2
    for arch in ("sm_80", "sm_89", "sm_90a"):
        record = MMA.record_of(job, TargetAttr("cuda", arch), replace(spec, stages=2))
        ((launch, cubin),) = compiled(emit_mma(launch_of(job, MMA.id, record)), arch)
        names = instructions(cubin)
        assert launch.code.name == f"gemm_mma_{types[0]}_{types[1]}_128x128x128"
        own, halves, converted = (
            sum(name.startswith(start) for name in names) for start in ("QMMA", "HMMA", "F2FP.F16.E")
        )
        assert max(own, halves) > 0 and max(own, halves) % (steps * tiles) == 0 and own * halves == 0
        assert (own > 0) == (arch == "sm_89")
        assert converted * tiles == (halves * registers if arch == "sm_90a" else 0)
        if arch != "sm_80":
            assert cubin.stack_bytes == 0 and not starting(names, SPILLS)


SPECS = (
    Spec(128, 256, 4),
    Spec(128, 192, 4, 2, 1),
    Spec(64, 64, 4, blocks_per_sm=2),
    Spec(64, 128, 4, split_k=4),
)


@pytest.mark.parametrize(("types", "spec"), [*zip(TYPES, SPECS, strict=True)])
def test_warpgroups_multiply_32_at_a_time(types: tuple[str, str], spec: Spec) -> None:
    job = floats(1024, 1536, 4096, types)
    ((_, cubin),) = compiled(emit_wgmma(launch_of(job, WGMMA.id, WGMMA.record_of(job, TARGET, spec))))
    names = instructions(cubin)
    products = {name for name in names if "GMMA" in name}
    letters = [each[2:6] for each in types]
    assert len(products) == 1 and products.pop().startswith(
        f"QGMMA.64x{spec.tile_n}x32.F32.{'.'.join(letters)}"
    )
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)


@pytest.mark.parametrize("after", ["gelu", "e4m3", "e5m2", "residual"])
def test_epilogues_compile_without_spills(after: str) -> None:
    """Of the widest tile, whose threads hold 128 sums."""
    module = float8_product(TYPES[0], 1024, 1024, 1024, after).module()
    pinned(module, WGMMA.id)
    launches = [each for unit in code_units(module) for each in unit.launches if each.kernel == WGMMA.id]
    for _, cubin in (each for launch in launches for each in compiled(emit_wgmma(launch))):
        assert cubin.stack_bytes == 0 and not starting(instructions(cubin), SPILLS)


# What simulated threads compute


def pinned(module: ModuleOp, kernel: str) -> None:
    """Compiles a module whose products run by one kernel."""
    policy = json.dumps({"kernels": dict.fromkeys(KINDS, kernel)})
    AicfInferencePass("cuda:sm_90a", policy=policy).apply(make_context(), module)


def assert_multiplied(graph: Graph, name: str, kernel: str, run: Any) -> None:
    """Runs a program on simulated threads, its products by one kernel, and holds it to float64."""
    module = graph.module()
    arrays = random_arrays(module, name)
    wanted = run_program(module, arrays)
    pinned(module, kernel)
    assert kernel in {launch.kernel for unit in code_units(module) for launch in unit.launches}
    for output, found in simulated(module, arrays, run).items():
        exact = wanted[output].astype(np.float64)
        limits = {"float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2, "float16": 2.0**-9}
        rtol = limits.get(found.dtype.name, 1e-5)
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=rtol, atol=max(1e-5, rtol / 100))


@pytest.mark.parametrize("seed", range(8))
def test_any_spec_multiplies_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random sizes, types, orders of B and epilogues by random specs: no access reaches out of an operand."""
    source, ranked = random.Random(seed), mma.ranked_specs

    def drawn_first(*arguments: Any) -> tuple[tuple[float, MmaSpec], ...]:
        found = ranked(*arguments)
        first = random.Random(seed).choice(found)
        return first, *(each for each in found if each is not first)

    monkeypatch.setattr(mma.MmaFloat8Kernel, "ranked", staticmethod(drawn_first))
    sizes = source.randint(1, 70), source.randint(1, 70), 4 * source.randint(1, 60)
    after, batch = source.choice(sorted(AFTER)), source.choice(((), (), (2,)))
    graph = float8_product(TYPES[seed % 4], *sizes, after, batch, transpose_b=source.random() < 0.5)
    assert_multiplied(graph, f"floats {seed}", MMA.id, run_tiles)


def test_products_that_share_an_operand() -> None:
    assert_multiplied(float8_gated(TYPES[0], 40, 36, 64), "gated", MMA.id, run_tiles)
    assert_multiplied(float8_projections(TYPES[1], 40, 36, 64), "projections", MMA.id, run_tiles)


@pytest.mark.parametrize(
    ("sizes", "after", "spec"),
    [
        ((70, 72, 144), "sums", Spec(64, 64, 2)),
        ((200, 96, 272), "e4m3", Spec(128, 64, 2)),
        ((100, 70, 128), "e5m2", Spec(64, 128, 2)),
        ((65, 72, 896), "e4m3", Spec(64, 64, 4, split_k=4)),
        ((65, 72, 640), "sums", Spec(64, 64, 4, split_k=2)),
        ((150, 128, 192), "residual", Spec(64, 64, 2, cluster_m=2)),
        ((64, 192, 160), "halves", Spec(64, 64, 2, cluster_n=2)),
    ],
)
def test_simulated_warpgroups(
    sizes: tuple[int, int, int], after: str, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tiles, clusters, splits and results of every kind, and weights that are packed."""
    monkeypatch.setattr(wgmma, "ranked", lambda task, arch, fixed=False: [spec])
    graph = float8_product(TYPES[sum(sizes) % 4], *sizes, after, transpose_b=spec.cluster_n == 1)
    assert_multiplied(graph, f"wgmma {sizes} {after}", WGMMA.id, wgmma_simulator.run)
