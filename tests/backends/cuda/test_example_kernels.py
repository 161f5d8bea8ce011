"""Every kernel of the examples and of the GPU benchmark as machine code: resources, instructions, waits. Without a GPU.

Kernels are those that the cost prior chooses and, for the benchmark, those of its tuning table, which is what is
timed. Each is compiled once, and kept in the cache of the toolchain.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.target import arch_named
from aicf.compilation.sources import tuning_text
from aicf.dialects.emit import PREPARE
from aicf.dialects.emit_kernels import SigmoidOp
from aicf.dialects.json_values import json_value
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units
from tests.backends.cuda.sass import ATOMICS, SPILLS, listings, names_of, starting

ROOT = Path(__file__).parents[3]
ARCH = arch_named("sm_90a")
REGISTERS_PER_SM, MOST_REGISTERS = 65536, 255
TUNED = ROOT / "benchmarks" / "tuning" / "h100.json"
EXAMPLES = {"softmax.mlir": "", "block/block.mlir": "", "digits/mlp.mlir": "N=540", "sgd/step.mlir": ""}
"""Files under examples/, with the sizes that their named dimensions get."""

REPEATING = ("mlp", "bert", "gpt2_12")
"""Benchmark programs of many layers: of these a few are enough."""

STREAMING = ("pointwise_256MB", "softmax_256MB", "layer_norm_256MB", "mlp_chain")
"""Benchmark programs whose kernels move whole rows: 16 bytes at a time."""

REQUIRED: dict[str, tuple[tuple[str, ...], ...]] = {
    "cuda.gemm_wgmma": (("HGMMA",), ("UTMALDG",), ("SYNCS",)),
    "cuda.gemm_norm": (("HGMMA",), ("UTMALDG",), ("SYNCS",)),
    "cuda.gemm_mma": (("HMMA.16816.F32",), ("LDGSTS",), ("LDSM",)),
    "cuda.gemm_simt": (("FFMA",), ("LDGSTS",)),
    "cuda.gemv": (("LDG",), ("FFMA", "HFMA2")),
    "cuda.attention": (("HMMA.16816.F32", "HGMMA"), ("LDGSTS", "UTMALDG")),
    "cuda.attention_wgmma": (("HGMMA",), ("UTMALDG",)),
    "cuda.attention_step": (("LDG",), ("FFMA", "HFMA2"), ("SHFL",)),
    "cuda.attention_backward": (("HMMA.16816.F32",), ("LDGSTS",), ("LDSM.16.M88",), ("LDSM.16.MT88",)),
    "cuda.attention_backward_short": (("HGMMA",), ("UTMALDG",), ("STSM",)),
    "cuda.attention_backward_wgmma": (("HGMMA",), ("UTMALDG",), ("STSM",)),
    "cuda.last_update": (),
    "cuda.write_row": (("LDG",), ("STG",)),
    "cuda.scatter_sorted": (),
    "cuda.topk": (),
    "cuda.non_max_suppression": (),
    "cuda.generated": (("LDG",), ("STG",)),
    "cuda.copy": (("LDG",), ("STG",)),
    "cuda.concat": (("LDG",), ("STG",)),
    "add_parts": (("LDG",), ("STG",)),
}
"""What the machine code of a kernel must hold: of each group at least one, by the start of its name. What adds the
parts of a split product goes by its own name: it multiplies nothing."""

OF_INTEGERS = ("cuda.last_update", "cuda.scatter_sorted", "cuda.topk")
"""Kernels that count and compare with atomics of integers, whose order changes nothing."""

SPILLED = {"cumsum_long_256MB": 24}
"""Bytes of a thread's memory where that was measured to take less time than shorter tiles without."""

FORBIDDEN = {
    SPILLS: "memory of a thread: registers were spilled",
    ATOMICS: "atomics: the order of a sum would be open",
    ("FMUL.FTZ", "FFMA.FTZ"): "flush of denormals: f32 is IEEE",
    (
        "MUFU.TANH",
        "MUFU.SIN",
        "MUFU.COS",
        "MUFU.SQRT",
        "MUFU.LG2",
    ): "approximations: results are within 4 ulp",
}
"""What no kernel may hold."""


@dataclass(frozen=True)
class Instance:
    """One kernel of one instruction, compiled: `names` are its instructions in order of the text. `is_prepare` tells
    what runs once from what runs at every call."""

    program: str
    is_prepare: bool
    launch: Launch
    part: KernelLaunch
    cubin: Cubin
    names: list[str]

    def __str__(self) -> str:
        return f"{self.program} '{self.launch.name}' ({self.launch.kernel}, {self.cubin.symbol})"

    def has(self, *starts: str) -> bool:
        """Whether an instruction's name starts with one of these."""
        return any(name.startswith(starts) for name in self.names)

    def first(self, *starts: str) -> int:
        """Place of the first such instruction, past the last if there is none."""
        found = (index for index, name in enumerate(self.names) if name.startswith(starts))
        return next(found, len(self.names))

    def recorded(self, field: str) -> Any:
        """An entry of the kernel record as a plain value."""
        value = self.launch.record.get(field)
        return None if value is None else json_value(value)


def benchmark_programs() -> ModuleType:
    """benchmarks/gpu/programs.py, which is no package: a folder named `benchmarks` on the path would hide `cuda`."""
    spec = importlib.util.spec_from_file_location(
        "gpu_benchmark_programs", ROOT / "benchmarks/gpu/programs.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def programs() -> Iterator[tuple[str, ModuleOp, str, str]]:
    """Name, logical module, sizes and tuning table. Benchmarks have the sizes of the table, and as few layers as
    repeat."""
    made = benchmark_programs()
    one_layer = made.EncoderConfig(layers=1)
    graphs = {
        "mlp_chain": made.mlp_chain(layers=2),
        "bert_1x128": made.bert_encoder(1, 128, one_layer),
        "bert_8x128": made.bert_encoder(8, 128, one_layer),
        **{name: make() for name, make in made.PROGRAMS.items() if not name.startswith(REPEATING)},
    }
    table = tuning_text(TUNED)
    for name, graph in graphs.items():
        yield name, graph.module(), "", ""
        yield name, graph.module(), "", table
    for file, dims in EXAMPLES.items():
        path = ROOT / "examples" / file
        yield file, parse_module(path.read_text("utf-8"), str(path)), dims, ""


def parts() -> Iterator[tuple[str, bool, Launch, KernelLaunch]]:
    """Every kernel launch of every program, with whether it is one of `@prepare`."""
    for name, module, dims, tuning in programs():
        AicfInferencePass("cuda:sm_90a", dims=dims, tuning=tuning).apply(make_context(), module)
        launches = ((unit.program, launch) for unit in code_units(module) for launch in unit.launches)
        for program, launch in launches:
            for part in emitter(launch.kernel)(launch):
                if isinstance(part, KernelLaunch):
                    yield name, program.sym_name.data == PREPARE, launch, part
                else:
                    assert tuning, "without a tuning table no library is called"


@pytest.fixture(scope="module")
def instances() -> list[Instance]:
    found = list(parts())
    cubins = compile_kernels((part.code for *_, part in found), ARCH.name)
    lines = listings(list(cubins.values()), ARCH.name)
    names = {symbol: names_of(each) for symbol, each in zip(cubins, lines, strict=True)}
    return [
        Instance(name, is_prepare, launch, part, cubins[part.code.symbol], names[part.code.symbol])
        for name, is_prepare, launch, part in found
    ]


def test_every_kernel_fits_the_machine(instances: list[Instance]) -> None:
    """Registers and shared memory of a block; nothing is spilled."""
    assert len({instance.cubin.symbol for instance in instances}) >= 25
    for each in instances:
        threads = each.part.block[0] * each.part.block[1] * each.part.block[2]
        granted = -(-each.cubin.registers // 8) * 8
        blocks = each.part.code.blocks_per_sm
        assert threads <= each.part.code.threads <= 1024, each
        assert each.cubin.registers <= MOST_REGISTERS and granted * threads * blocks <= REGISTERS_PER_SM, each
        assert (each.cubin.shared_bytes + each.part.shared_bytes) * blocks <= ARCH.shared_bytes, each
        assert each.cubin.stack_bytes <= SPILLED.get(each.program, 0), each


def test_every_kernel_has_the_instructions_that_make_it_fast(instances: list[Instance]) -> None:
    assert {"cuda.gemm_wgmma", "cuda.gemm_mma", "cuda.gemv"} <= {each.launch.kernel for each in instances}
    for each in instances:
        name = each.part.code.name
        # Before a chain of tiles goes what clears their flags: it reads nothing.
        chained = each.recorded("strategy") == "scan_chain"
        for group in (("STG",),) if chained else REQUIRED[name if name in REQUIRED else each.launch.kernel]:
            assert each.has(*group), f"{each} has none of {', '.join(group)}"


def test_streaming_kernels_move_sixteen_bytes_at_a_time(instances: list[Instance]) -> None:
    """What `@prepare` widens is stored so: it loads half as much."""
    streaming = [each for each in instances if each.program in STREAMING]
    assert {each.program for each in streaming if not each.is_prepare} == set(STREAMING)
    assert sum(not each.is_prepare for each in streaming) >= 6
    for each in streaming:
        if not each.is_prepare:
            assert any(name.startswith("LDG") and ".128" in name for name in each.names), each
        if each.launch.kernel == "cuda.generated":
            assert each.has("STG.E.128") and not each.has("LDG.E.U16", "STG.E.U16"), each


def test_no_kernel_has_forbidden_instructions(instances: list[Instance]) -> None:
    for each in instances:
        for starts, why in FORBIDDEN.items():
            bad = [name for name in starting(each.names, starts) if not is_allowed(each, starts, name)]
            assert not bad, f"{each} has {', '.join(bad)}; {why}"
        assert not any("TF32" in name for name in each.names), f"{each} rounds f32 to TF32"
        if each.launch.ins[0].dtype == "f32":
            assert not each.has("HMMA", "HGMMA"), f"{each} multiplies f32 on tensor cores"


def is_allowed(each: Instance, forbidden: tuple[str, ...], name: str) -> bool:
    """Whether what is forbidden elsewhere is exact, or was measured, in this kernel."""
    if forbidden is ATOMICS:
        return each.launch.kernel in OF_INTEGERS and ".F" not in name
    return forbidden is SPILLS and each.program in SPILLED


def test_division_is_ieee(instances: list[Instance]) -> None:
    """A division that the program has, by what is no constant, is the exact sequence with its check of ranges."""
    dividing = [each for each in instances if _divides(each.launch)]
    assert len(dividing) >= 4
    for each in dividing:
        assert each.has("FCHK"), each


def _divides(launch: Launch) -> bool:
    code = launch.code
    return code is not None and any(
        isinstance(op, SigmoidOp)
        or (isinstance(op, arith.DivfOp) and not isinstance(op.rhs.owner, arith.ConstantOp))
        for op in code.walk()
    )


def test_every_kernel_waits_before_it_touches_what_others_write(instances: list[Instance]) -> None:
    """What the plan counts on: a wait before every store, and of every load unless the record names early ones;
    a kernel that says so lets its successors start."""
    for each in instances:
        wait = each.first("ACQBULK")
        assert wait < len(each.names), f"{each} never waits"
        assert wait < each.first("STG", "UTMASTG"), f"{each} stores before it waits"
        if each.recorded("early_reads") == []:
            assert wait < each.first("LDG", "UTMALDG"), f"{each} loads before it waits"
        assert each.has("PREEXIT") == bool(each.recorded("triggers")), each
