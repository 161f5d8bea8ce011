"""The CPU backend as the compiler and the runtime see it. Code generation is imported when a program is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp

from aicf.backends.base import PACKED, CodeUnit, Peaks
from aicf.backends.common.kernel import AnyKernel, kernels_below
from aicf.backends.common.user_kernel import UserKernel
from aicf.backends.cpu.families.custom.kernel import CpuUserKernel
from aicf.backends.cpu.families.gemm.schedule import (
    L2_BYTES,
    L2_BYTES_PER_CYCLE,
    L3_BYTES_PER_CYCLE,
    NOMINAL_GHZ,
)
from aicf.backends.cpu.runtime.blas import LIBRARY, host_libraries
from aicf.backends.cpu.runtime.loader import LEVEL_FEATURE, load_native
from aicf.backends.cpu.target import ELEMENT_BYTES, FEATURES, host_level, level_named
from aicf.backends.host import processor_facts, processor_name
from aicf.backends.native import LoadedCode, NativeCode
from aicf.dialects.emit_types import TargetAttr


class CpuBackend:
    """Native code for CPUs, one object per module."""

    name = "cpu"
    library_names = (LIBRARY,)
    feature_names = tuple(FEATURES)
    cache_bytes = L2_BYTES
    timing = "aicf.tuning.host_device:HostDevice"

    def resolve_arch(self, arch: str | None) -> str:
        """The level `arch`, or this machine's. Raises PolicyError with the legal ones."""
        return (host_level() if arch is None else level_named(arch)).name

    def libraries(self) -> Mapping[str, str]:
        """Libraries of this machine that a target may list, with version and core."""
        return host_libraries()

    def kernels(self) -> Sequence[AnyKernel]:
        """All kernels, in a fixed order."""
        return kernels_below("aicf.backends.cpu.families")

    def user_kernel(self, spec: UserKernel) -> AnyKernel:
        """See `UserKernelBackend`."""
        return CpuUserKernel(spec)

    def build(self, module: ModuleOp, units: Sequence[CodeUnit], target: TargetAttr) -> NativeCode:
        """Code for all units."""
        from aicf.backends.cpu.compiler.build import build_object

        level = level_named(target.arch.data)
        code, functions = build_object("aicf", units, level)
        return NativeCode(code, (f"{LEVEL_FEATURE}{level.name}", *level.required_features), functions)

    def load(self, native: NativeCode) -> LoadedCode:
        """Loads code into this process."""
        return load_native(native)

    def devices(self) -> Sequence[Mapping[str, str]]:
        """This machine's processor."""
        return (processor_facts(host_level().name),)

    def peaks(self, arch: str, threads: int) -> Peaks:
        """See `RooflineBackend`: two vector operations a cycle, and the levels of cache that products stream from."""
        level = level_named(arch)
        cycles = NOMINAL_GHZ * 1e3 * threads
        each = 2 * (2 if level.has_fma else 1) * cycles
        products = {dtype: each * level.lanes(dtype) for dtype in ELEMENT_BYTES}
        if "avx512vnni" in level.features:
            products |= dict.fromkeys(("i8", "u8"), 4 * products["i32"])
        products[PACKED] = products["i8"]
        if "avx512bf16" in level.features:
            products["bf16"] *= 2
        memory = (L2_BYTES * threads, L2_BYTES_PER_CYCLE * cycles), (0, L3_BYTES_PER_CYCLE * cycles)
        return Peaks(memory, products, 2 * level.lanes("f32") * cycles)

    def machine(self) -> str:
        """See `MachineBackend`: the processor."""
        return processor_name()
