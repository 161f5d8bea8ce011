"""GPU architectures: what the code generator may assume about a GPU, without looking at one. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.errors import PolicyError

PIECE_BYTES = 16
"""Most bytes of one load or store of a thread."""
ELEMENT_BYTES: dict[str, int] = {
    **{"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8E4M3FN": 1, "f8E5M2": 1},
    **{"i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "i1": 1},
}
"""Bytes per element in device memory of each type that cuda runs; `i1` is one byte holding 0 or 1."""

SHORT_INTEGERS = ("i16", "i8", "u8")
"""Integers that registers hold as i32."""

HALVES = ("f16", "bf16")
FLOAT8 = ("f8E4M3FN", "f8E5M2")
NARROW_FLOATS = (*HALVES, *FLOAT8)
"""Floats that registers hold as f32."""

FLOATS = ("f64", "f32", *NARROW_FLOATS)


@dataclass(frozen=True)
class GpuArch:
    """One architecture.

    Args:
        name: As in `#emit.target<"cuda", NAME>`.
        capability: Compute capability times ten.
        multiprocessors: Of its largest common part; the unit of cost priors and grid choices.
        shared_bytes: Most dynamic shared memory of one block.
        bandwidth_gbs, copy_l2_gbs: Memory and L2 throughput, for cost priors.
        tensor_tflops: Dense f16 and bf16 products.
        f32_tflops: IEEE f32 outside tensor cores.
        has_programmatic_launch: Kernels start before the previous one has ended, and wait inside.
        has_clusters: Blocks in clusters, which read each other's shared memory.
        has_tma: Bulk tensor copies out of descriptors.
        has_wgmma: Warpgroup products, which the `a` feature set of Hopper adds.
        multiplies_float8: Warps multiply floats of 8 bits as they are; else as halves. (Warpgroups of Hopper multiply
            them, its warps do not.)
    """

    name: str
    capability: int
    multiprocessors: int
    shared_bytes: int
    bandwidth_gbs: float
    copy_l2_gbs: float
    tensor_tflops: float
    f32_tflops: float
    has_programmatic_launch: bool = False
    has_clusters: bool = False
    has_tma: bool = False
    has_wgmma: bool = False
    multiplies_float8: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether its code runs on its own capability alone: later GPUs do not take the `a` feature sets over."""
        return self.name.endswith("a")


ARCHES: dict[str, GpuArch] = {
    arch.name: arch
    for arch in (
        GpuArch("sm_80", 80, 108, 163 << 10, 1500, 4000, 280, 19),
        GpuArch("sm_86", 86, 84, 99 << 10, 850, 3000, 140, 35),
        GpuArch("sm_89", 89, 128, 99 << 10, 950, 4500, 300, 80, multiplies_float8=True),
        GpuArch("sm_90", 90, 132, 227 << 10, 2950, 5500, 750, 60, True, True, True, False),
        GpuArch("sm_90a", 90, 132, 227 << 10, 2950, 5500, 750, 60, True, True, True, True),
    )
}
"""By name. Figures are round ones of common parts: they order kernels, measurements replace them."""


def arch_named(name: str) -> GpuArch:
    """The architecture called `name`. Raises PolicyError with the legal ones."""
    if name not in ARCHES:
        raise PolicyError(f"unknown cuda architecture '{name}'; legal: {', '.join(ARCHES)}")
    return ARCHES[name]


def runs_on(arch: str, capability: int) -> bool:
    """Whether code for `arch` runs on a GPU of `capability` (times ten): same major version, and not older; code with
    the `a` features on its own capability alone."""
    needed = arch_named(arch)
    if needed.is_exact:
        return capability == needed.capability
    return capability // 10 == needed.capability // 10 and capability >= needed.capability
