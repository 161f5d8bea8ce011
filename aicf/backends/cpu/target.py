"""CPU levels: what the code generator may assume about the machine, and whether this machine has it.

A level is a named set of instructions (``x86-64-v2``, ``-v3``, ``-v4``, or ``generic`` for any other architecture). It
fixes vector width, register count and fused multiply-add, so that a program is decided and compiled for a level without
looking at a device. Features are instructions that some processors of a level have; they follow its name, as in
``x86-64-v4+avx512vnni``. Only :func:`host_level` and :func:`check_host` look at this machine, and only they need
llvmlite.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from aicf.backends.machine_code import llvm_binding
from aicf.errors import BackendUnavailable, PolicyError, quoted
from aicf.support.uninterrupted import uninterrupted

ELEMENT_BYTES: dict[str, int] = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8E4M3FN": 1,
    "f8E5M2": 1,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "u8": 1,
    "i1": 1,
}
"""Bytes per element in memory of each element type the CPU backend runs; ``i1`` is one byte holding 0 or 1."""

HALVES = ("f16", "bf16")
FLOAT8 = ("f8E4M3FN", "f8E5M2")
NARROW_FLOATS = (*HALVES, *FLOAT8)
FLOATS = ("f64", "f32", *NARROW_FLOATS)

REGISTERS: dict[str, str] = {dtype: "f32" if dtype in NARROW_FLOATS else dtype for dtype in ELEMENT_BYTES}
"""Element type in memory to that of its values in registers: narrow floats are computed with in f32."""

SHORT_INTEGERS = ("i16", "i8", "u8")
"""Integers that i16 or the low half of i32 holds: two of them are multiplied by one operation."""

ACCUMULATORS: dict[str, str] = {**REGISTERS, "i16": "i32", "i8": "i32", "u8": "i32"}
"""Element type of the operands of a product to that of its sums; integers wrap around in their own when stored."""


def register_bytes(dtype: str) -> int:
    """Bytes of a value of `dtype` in a register."""
    return ELEMENT_BYTES[REGISTERS[dtype]]


MAX_SHUFFLED = 4
"""Elements up to so far apart are shuffled out of whole vectors, and into them; others go one by one."""


FEATURES: dict[str, str] = {
    "avx512vnni": "products of four 8-bit or two 16-bit integers, added up in i32",
    "avx512bf16": "products of two bf16, added up in f32; conversions from f32 to bf16",
}
"""What may follow the name of a level, by LLVM's name of it, in the order of a target's name, and what it computes."""

FEATURED_LEVEL = "x86-64-v4"
"""The level that may have `FEATURES`: their vectors have 512 bits."""


@dataclass(frozen=True)
class CpuLevel:
    """One instruction-set level, with the features that are used beside it."""

    name: str
    """Name in ``#emit.target<"cpu", NAME>``, features included."""
    architecture: str
    """Machine architecture as in a target triple, or "" for that of the compiling machine."""
    llvm_cpu: str
    llvm_features: str
    vector_bytes: int
    registers: int
    """Architectural vector registers."""
    has_fma: bool
    """Fused multiply-add; without it products are rounded before they are added."""
    has_f16: bool
    """Instructions between f16 and f32; without them the conversions are integer code."""
    required_features: tuple[str, ...]
    """LLVM feature names that the loading machine must have."""
    features: tuple[str, ...] = ()
    """Those of `FEATURES` that code may use."""

    def with_features(self, features: Iterable[str]) -> CpuLevel:
        """This level, which has none, with some of `FEATURES`."""
        wanted = set(features)
        chosen = tuple(name for name in FEATURES if name in wanted)
        flags = [self.llvm_features, *(f"+{name}" for name in chosen)]
        return replace(
            self,
            name="+".join((self.name, *chosen)),
            llvm_features=",".join(filter(None, flags)),
            required_features=(*self.required_features, *chosen),
            features=chosen,
        )

    def lanes(self, dtype: str) -> int:
        """Values of `dtype` in one vector register."""
        return self.vector_bytes // register_bytes(dtype)


_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

LEVELS: dict[str, CpuLevel] = {
    level.name: level
    for level in (
        CpuLevel("x86-64-v2", "x86_64", "x86-64-v2", "", 16, 16, False, False, _V2),
        CpuLevel("x86-64-v3", "x86_64", "x86-64-v3", "", 32, 16, True, True, _V3),
        # LLVM's own preference for this level is 256 bits; the GEMM tiles are made for 512.
        CpuLevel("x86-64-v4", "x86_64", "x86-64-v4", "-prefer-256-bit", 64, 32, True, True, _V4),
        CpuLevel("aarch64-v8", "aarch64", "generic", "+neon", 16, 32, True, True, ("neon",)),
        CpuLevel("generic", "", "generic", "", 16, 16, False, False, ()),
    )
}


@functools.cache
def level_named(name: str) -> CpuLevel:
    """The level called `name`, such as ``x86-64-v4`` or ``x86-64-v4+avx512vnni``.

    Raises:
        PolicyError: There is no such level, or it has no such feature.
    """
    own, *features = name.split("+")
    level = LEVELS.get(own)
    if level is None:
        raise PolicyError(
            f"unknown cpu level {quoted(own)}: use one of {', '.join(LEVELS)}, or plain 'cpu' for this machine's"
        )
    if features and own != FEATURED_LEVEL:
        raise PolicyError(
            f"cpu level {own} has no features: leave out +{'+'.join(features)}, or use {FEATURED_LEVEL}"
        )
    for feature in features:
        if feature not in FEATURES:
            raise PolicyError(f"unknown cpu feature {quoted(feature)}: {own} may have {', '.join(FEATURES)}")
    return level.with_features(features)


def host_architecture() -> str:
    """The architecture of this machine, as levels name it."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def host_features() -> Mapping[str, bool]:
    return uninterrupted(lambda: dict(llvm_binding().get_host_cpu_features()))


def _missing(level: CpuLevel, features: Mapping[str, bool]) -> list[str]:
    return [name for name in level.required_features if not features.get(name, False)]


def host_level() -> CpuLevel:
    """The best level this machine runs, with the features that it has."""
    architecture = host_architecture()
    if architecture == "aarch64":
        return LEVELS["aarch64-v8"]  # Advanced SIMD is part of the base architecture.
    if architecture == "x86_64":
        features = host_features()
        for name in ("x86-64-v4", "x86-64-v3", "x86-64-v2"):
            if not _missing(LEVELS[name], features):
                own = (feature for feature in FEATURES if features.get(feature, False))
                return LEVELS[name].with_features(own if name == FEATURED_LEVEL else ())
    return LEVELS["generic"]


def check_host(level: CpuLevel) -> None:
    """Refuse native code of `level` on a machine that lacks its instructions.

    Raises:
        BackendUnavailable: With the missing features and the way out.
    """
    architecture = host_architecture()
    if level.architecture not in ("", architecture):
        raise BackendUnavailable(
            f"the program was compiled for cpu:{level.name} ({level.architecture}) but this machine is {architecture}: "
            "compile it again here, or load it with native='rebuild'"
        )
    if architecture != "x86_64":
        return
    missing = _missing(level, host_features())
    if missing:
        raise BackendUnavailable(
            f"the program was compiled for cpu:{level.name} but this machine lacks {', '.join(missing)}: "
            f"compile it with target 'cpu:{host_level().name}', or load it with native='rebuild'"
        )
