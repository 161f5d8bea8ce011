"""The CUDA backend as the compiler and the runtime see it. Code generation is imported when a program is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.ir import Attribute

from aicf.backends.base import PACKED, CodeUnit, Peaks
from aicf.backends.common.kernel import AnyKernel, kernels_below
from aicf.backends.common.user_kernel import UserKernel
from aicf.backends.cuda.families.custom.kernel import CudaUserKernel
from aicf.backends.cuda.runtime.library import LIBRARIES, installed
from aicf.backends.cuda.runtime.storage import read
from aicf.backends.cuda.target import FLOAT8, HALVES, arch_named
from aicf.backends.native import DeviceCode, NativeCode
from aicf.dialects.emit_types import KernelAttr, TargetAttr
from aicf.errors import BackendUnavailable


class CudaBackend:
    """Cubins for NVIDIA GPUs, launched with library calls inside one CUDA Graph."""

    name = "cuda"
    device = "cuda"
    timing = "aicf.tuning.cuda_device:GpuDevice"
    library_names = tuple(LIBRARIES)
    bind_align = 16
    """Kernels load 16 bytes at once, and TMA descriptors take no other addresses."""
    join_us = 1.0
    """An edge from another branch of a graph is never programmatic, and the branches start one after the other."""

    def resolve_arch(self, arch: str | None) -> str:
        """The architecture `arch`, or that of this machine's GPU.

        Raises PolicyError for an unknown one, BackendUnavailable if there is no GPU to ask.
        """
        if arch is not None:
            return arch_named(arch).name
        from aicf.backends.cuda.runtime.driver import host_arch

        try:
            return host_arch()
        except BackendUnavailable as error:
            raise BackendUnavailable(
                f"{error.message}, or name an architecture to compile for, as in cuda:sm_90a"
            ) from None

    def how_to_choose(self, ordinal: int) -> str:
        """See `DeviceBackend`: the driver's own variable."""
        return f"name it cuda:{ordinal}"

    def libraries(self) -> Mapping[str, str]:
        """Those that load here: a table measured with another version of one is refused for this machine."""
        return installed()

    def copy_us(self, nbytes: int, target: TargetAttr) -> float:
        """See `BoundaryBackend`: a node of its own, reading and writing memory at 80 % of its bandwidth."""
        return 2.0 + 2 * nbytes / (0.8e3 * arch_named(target.arch.data).bandwidth_gbs)

    def kernels(self) -> Sequence[AnyKernel]:
        """All kernels, in a fixed order."""
        return kernels_below("aicf.backends.cuda.families")

    def user_kernel(self, spec: UserKernel) -> AnyKernel:
        """See `UserKernelBackend`."""
        return CudaUserKernel(spec)

    def build(self, module: ModuleOp, units: Sequence[CodeUnit], target: TargetAttr) -> NativeCode:
        """Code for all units; needs no GPU."""
        from aicf.backends.cuda.compiler.build import build_module
        from aicf.backends.cuda.runtime.loader import reserves

        arch = arch_named(target.arch.data)
        code = build_module(units, arch)
        return NativeCode(code, (f"cuda-{arch.name}",), memory="device", reserves=reserves(read(code)[0]))

    def load(self, native: NativeCode) -> DeviceCode:
        """Loads code onto this machine's GPU."""
        from aicf.backends.cuda.runtime.loader import load_native

        return load_native(native)

    def device_share(self, kernel: KernelAttr, target: TargetAttr) -> float:
        """Blocks of the largest launch by multiprocessors; a library's launches are not known and take all."""
        blocks = _blocks(kernel.record.data)
        return 1.0 if blocks is None else min(1.0, blocks / arch_named(target.arch.data).multiprocessors)

    def peaks(self, arch: str, threads: int) -> Peaks:
        """See `RooflineBackend`: device memory, tensor cores, and f32 elsewhere."""
        own = arch_named(arch)
        halves = own.tensor_tflops * 1e6
        takes_float8 = own.multiplies_float8 or own.has_wgmma
        products = {
            **dict.fromkeys((*HALVES, PACKED), halves),
            **dict.fromkeys(("i8", "u8"), 2 * halves),
            **dict.fromkeys(FLOAT8, 2 * halves if takes_float8 else halves),
        }
        return Peaks(((0, own.bandwidth_gbs * 1e3),), products, own.f32_tflops * 1e6)

    def devices(self) -> Sequence[Mapping[str, str]]:
        """This machine's GPUs."""
        from aicf.backends.cuda.runtime.driver import describe_devices

        return describe_devices()


def _blocks(record: Mapping[str, Attribute]) -> int | None:
    """Blocks of the largest launch of a record: of its `grid`, or of one of its `grids` or `parts`; None if it states
    none."""
    match record:
        case {"grid": grid}:
            return _product(grid)
        case {"grids": ArrayAttr() as grids}:
            return max(map(_product, grids), default=None)
        case {"parts": ArrayAttr() as parts}:
            found = [_blocks(part.data) for part in parts if isinstance(part, DictionaryAttr)]
            return max((count for count in found if count is not None), default=None)
        case _:
            return None


def _product(grid: Attribute) -> int:
    return prod(size.value.data for size in cast("ArrayAttr[IntegerAttr]", grid).data)
