"""Programs, kernels and a device whose times a test chooses, for tests of tuning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from aicf.backends import registry
from aicf.backends.common.kernel import AnyKernel, Kernel, kernels_below
from aicf.backends.common.record import Record
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.backend import CpuBackend
from aicf.backends.cpu.families.gemm.kernel import GemmKernel
from aicf.backends.native import NativeCode
from aicf.compilation.record import Options
from aicf.dialects.emit_types import TargetAttr
from aicf.policies.tuning_table import TuningTable
from aicf.support.progress import Step
from aicf.tuning.cases import Case, Prepared
from aicf.tuning.growing_table import GrowingTable
from aicf.tuning.measure import Device, Runnable, Samples, Variant, header_of, measure, rounds_by_time
from aicf.tuning.plan import prepare

TARGET = "cpu:x86-64-v3"

TWO_PRODUCTS = """
func.func @two(
    %x : tensor<16x32xf32> {logical.name = "x", logical.role = "input"},
    %a : tensor<32x24xf32> {logical.name = "a", logical.role = "input"},
    %b : tensor<24x8xf32> {logical.name = "b", logical.role = "input"})
    -> (tensor<16x8xf32> {logical.name = "y"}) {
  %first = logical.matmul %x, %a : (tensor<16x32xf32>, tensor<32x24xf32>) -> tensor<16x24xf32>
  %second = logical.matmul %first, %b : (tensor<16x24xf32>, tensor<24x8xf32>) -> tensor<16x8xf32>
  func.return %second : tensor<16x8xf32>
}
"""
"""Two matrix products that no pass fuses."""


@dataclass
class FakeDevice:
    """A `Device` that runs nothing: `times` gives the cold microseconds of a kernel, warm ones are half."""

    times: Callable[[str, Mapping[str, object]], float]
    offers: Sequence[Variant] = ()
    name: str = "a fake device"
    driver: str = "1.0"
    lost: bool = False
    shares_cores: bool = False

    def __post_init__(self) -> None:
        self.libraries: dict[str, str] = {}

    def variants(self, case: Case) -> Sequence[Variant]:
        return self.offers

    def time(self, case: Case, native: NativeCode) -> Samples:
        cold = self.times(case.kernel, case.spec)
        return Samples([cold - 0.5, cold, cold + 0.5], [cold / 2] * 3)

    def rounds(self, first: Runnable, second: Runnable) -> Iterator[tuple[Samples, Samples]]:
        return rounds_by_time(self, first, second, 3)


def silent(what: str) -> None:
    """A `Step` that tells nobody."""


def prepared(model: str = TWO_PRODUCTS, policy: str = "") -> Prepared:
    return prepare(model, Options(TARGET, policy, "", 1), 16, silent)


def table_of(
    made: Prepared, device: Device, step: Step = silent, older: TuningTable | None = None
) -> TuningTable:
    """The table of prepared cases, in memory alone."""
    table = GrowingTable(header_of(made.setting, device), older)
    measure(made, device, step, table)
    return table.table


def measured(times: Mapping[str, float], model: str = TWO_PRODUCTS) -> TuningTable:
    """The table of a model where each kernel takes as long as `times` says, on all work."""
    return table_of(prepared(model), FakeDevice(lambda kernel, _: times[kernel]))


@dataclass(frozen=True)
class TiledKernel(Kernel[Record]):
    """A kernel of products with three tiles; what it would do is never built."""

    id: str = "cpu.tiled"
    version: int = 3
    determinism: str = "bitwise"
    simplicity: int = 9
    kinds: frozenset[str] = frozenset({"gemm"})

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        return 1e6

    def schedule(self, work: Workload, target: TargetAttr) -> Record:
        return self.variants(work, target)[0]

    def record_of(self, work: Workload, target: TargetAttr, schedule: Record) -> dict[str, Attribute]:
        return dict(schedule)

    def read(self, work: Workload, record: Record, target: TargetAttr) -> Record:
        return record

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        return [{"tile": IntegerAttr(tile, i64), "stages": IntegerAttr(4, i64)} for tile in (64, 128, 256)]


@dataclass(frozen=True)
class LibraryKernel(TiledKernel):
    """A kernel whose algorithm only the device knows."""

    id: str = "cpu.library"

    device_fields: Mapping[str, Attribute] = field(
        default_factory=lambda: {"algorithm": StringAttr(""), "workspace_bytes": IntegerAttr(4096, i64)}
    )

    def variants(self, work: Workload, target: TargetAttr) -> Sequence[Mapping[str, Attribute]]:
        return [{"order": IntegerAttr(1, i64)}]


def register(monkeypatch: pytest.MonkeyPatch, *kernels: AnyKernel) -> None:
    """Adds kernels to backend `cpu` for one test."""
    monkeypatch.setattr(
        CpuBackend, "kernels", lambda self: (*kernels_below("aicf.backends.cpu.families"), *kernels)
    )
    registry.get_kernels.cache_clear()


@pytest.fixture(autouse=True)
def fresh_kernels(monkeypatch: pytest.MonkeyPatch):
    """No test sees the kernels of another. Products have one variant each here: tables are tested, not tiles."""
    monkeypatch.setattr(GemmKernel, "variants", lambda self, *arguments: [self.record(*arguments)])
    registry.get_kernels.cache_clear()
    yield
    registry.get_kernels.cache_clear()
