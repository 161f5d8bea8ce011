"""cublasLt without a tuning table: the algorithm that the library's heuristic proposes becomes part of the record.

A fake library answers, and keeps what it was queried for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.backends.cuda.families.library import heuristic
from aicf.backends.cuda.runtime import cublaslt
from aicf.errors import BackendUnavailable, PolicyError
from tests.backends.cuda.test_cublaslt import Product

VERSION = "13.0.2"
HERE = f"cuda:sm_90a+cublasLt={VERSION}"
ALGORITHM = bytes(range(64))
KERNEL = "cuda.cublaslt"


class _Names:
    """Enumerations whose members are numbered as they are asked for."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __getattr__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def __getitem__(self, name: str) -> int:
        return getattr(self, name)

    def name_of(self, number: int) -> str:
        return next(name for name, known in self._numbers.items() if known == number)


class _Compute(IntEnum):
    COMPUTE_32F = 68


@dataclass
class FakeLibrary:
    """`nvmath.bindings.cublasLt` as far as its heuristic goes.

    Args:
        offers: How many algorithms it knows.
        queries: How often its heuristic was queried.
        limits: Attributes of the last preference.
        operation: Attributes of the last operation.
        layouts: Arguments of the matrices.
        open: Descriptors and handles that nobody gave back.
    """

    offers: int = 1
    queries: int = 0
    limits: dict[str, int] = field(default_factory=dict[str, int])
    operation: dict[str, int] = field(default_factory=dict[str, int])
    layouts: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    open: set[int] = field(default_factory=set[int])
    made: int = 0
    MatmulPreferenceAttribute: Any = field(default_factory=_Names)
    MatmulDescAttribute: Any = field(default_factory=_Names)
    MatrixLayoutAttribute: Any = field(default_factory=_Names)
    Epilogue: Any = field(default_factory=_Names)

    class cuBLASLtError(Exception):
        """As the library calls it."""

    matmul_heuristic_result_dtype = np.dtype(
        [("algo", np.uint8, 64), ("workspace_size", np.uint64), ("state", np.int32)]
    )

    def get_version(self) -> int:
        return 130002

    def create(self, *_: int) -> int:
        self.made += 1
        self.open.add(self.made)
        return self.made

    def destroy(self, made: int) -> None:
        self.open.remove(made)

    matmul_preference_create = matmul_desc_create = create
    matmul_preference_destroy = matmul_desc_destroy = matrix_layout_destroy = destroy

    def matrix_layout_create(self, *shape: int) -> int:
        self.layouts.append(shape)
        return self.create()

    def matmul_preference_set_attribute(self, _: int, name: int, at: int, size: int) -> None:
        value = int.from_bytes(ctypes.string_at(at, size), "little")
        self.limits[self.MatmulPreferenceAttribute.name_of(name)] = value

    def matmul_desc_set_attribute(self, _: int, name: int, at: int, size: int) -> None:
        value = int.from_bytes(ctypes.string_at(at, size), "little")
        self.operation[self.MatmulDescAttribute.name_of(name)] = value

    def matrix_layout_set_attribute(self, *_: int) -> None:
        """Of a batch."""

    def matmul_algo_get_heuristic(self, *args: int) -> None:
        *_, count, results, found = args
        self.queries += 1
        record = np.zeros(1, self.matmul_heuristic_result_dtype)
        record["algo"], record["workspace_size"] = np.frombuffer(ALGORITHM, np.uint8), 4096
        offered = min(count, self.offers)
        ctypes.memmove(results, record.ctypes.data, record.nbytes * offered)
        ctypes.c_int.from_address(found).value = offered


def _compute_type(values: object) -> int:
    return int(_Compute.COMPUTE_32F)


class _Device:
    def enter(self) -> None:
        """Makes its context current."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLibrary]:
    """A machine with the library and an sm_90a."""
    lt = FakeLibrary()
    monkeypatch.setattr(cublaslt, "_bindings", lambda: lt)
    monkeypatch.setattr(cublaslt, "_compute_type", _compute_type)
    monkeypatch.setattr(heuristic, "CudaDevice", _Device)
    monkeypatch.setattr(heuristic, "host_arch", lambda: "sm_90a")
    heuristic.first_offered.cache_clear()
    yield lt
    heuristic.first_offered.cache_clear()
    assert not lt.open


def compiled(target: str, **policy: Any) -> aicf.CompiledModel:
    product = Product(a=(64, 32), b=(32, 48), out=(64, 48), bias=True, dtype="f16")
    weights = {"b": np.zeros((32, 48), np.float16), "v": np.zeros(48, np.float16)}
    return aicf.compile(product.text(), weights, target, policy=aicf.KernelPolicy(**policy))


def chosen(model: aicf.CompiledModel) -> Any:
    """What the ledger has of the one product."""
    (found,) = [each for each in model.decisions if each.made_by == "select-kernels"]
    return found


def test_the_proposal_becomes_part_of_the_record(fake: FakeLibrary) -> None:
    model = compiled(HERE, matmul="cublasLt")
    decision = chosen(model)
    assert decision.choice == KERNEL
    assert decision.because == (
        "policy prefers cublasLt (matmul); what only the device knows is what its library proposed"
    )
    text = model.ir("emit")
    assert f'algorithm = "{ALGORITHM.hex()}", library = "{VERSION}", workspace_bytes = 4096 : i64' in text


def test_the_heuristic_is_told_what_the_call_will_be(fake: FakeLibrary) -> None:
    """Matrices by columns: the library's `a` is our B."""
    compiled(HERE, matmul="cublasLt")
    assert fake.limits["MAX_WORKSPACE_BYTES"] == 32 << 20
    assert {fake.limits[f"MIN_ALIGNMENT_{name}_BYTES"] for name in "ABCD"} == {16}
    assert [shape[1:] for shape in fake.layouts] == [
        (48, 32, 48),
        (32, 64, 32),
        (48, 64, 48),
        (48, 64, 48),
    ]
    assert fake.operation["EPILOGUE"] == fake.Epilogue["BIAS"]


def test_it_is_queried_once_for_calls_that_are_alike(fake: FakeLibrary) -> None:
    first, again = (compiled(HERE, matmul="cublasLt") for _ in range(2))
    assert fake.queries == 1
    assert first.ir("emit") == again.ir("emit")


def test_a_pinned_kernel_is_queried_for_too(fake: FakeLibrary) -> None:
    by_kind = chosen(compiled(HERE, kernels={"gemm_epilogue": KERNEL}))
    (id_,) = by_kind.subjects
    assert by_kind.choice == chosen(compiled(HERE, kernels={id_: KERNEL})).choice == KERNEL


def test_nothing_is_queried_if_the_policy_leaves_the_choice_open(fake: FakeLibrary) -> None:
    """What a compile decides by itself does not depend on the machine that it runs on."""
    decision = chosen(compiled(HERE))
    assert decision.rejected[KERNEL] == "unmeasured: run aicf tune"
    assert not fake.queries


def test_a_policy_that_was_extracted_needs_no_device(
    fake: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records have the algorithm."""
    model = compiled(HERE, matmul="cublasLt")
    (id_,) = chosen(model).subjects
    found = {"algorithm": ALGORITHM.hex(), "library": VERSION, "workspace_bytes": 4096}

    def nobody() -> str:
        raise BackendUnavailable("no GPU")

    monkeypatch.setattr(heuristic, "host_arch", nobody)
    again = compiled(HERE, kernels={id_: KERNEL}, records={id_: found})
    assert chosen(again).choice == KERNEL


WAY_OUT = "; compile with target cuda on the machine with the GPU, or give a tuning table"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("cuda:sm_90a", "the target lists no cublasLt"),
        (
            "cuda:sm_90a+cublasLt=12.9.1",
            f"the library here is cublasLt {VERSION}, the target's cublasLt 12.9.1",
        ),
        (f"cuda:sm_80+cublasLt={VERSION}", "the GPU here is sm_90a, the target's sm_80"),
    ],
)
def test_another_machine_is_not_queried(fake: FakeLibrary, target: str, reason: str) -> None:
    """Another kernel runs the group, and the ledger says why; a pin is an error."""
    decision = chosen(compiled(target, matmul="cublasLt"))
    assert decision.choice != KERNEL
    assert decision.because.endswith("; matmul: cublasLt does not run it, see cuda.cublaslt")
    said = f"unmeasured: run aicf tune; and the device cannot be queried: {reason}{WAY_OUT}"
    assert decision.rejected[KERNEL] == said
    assert not fake.queries
    with pytest.raises(PolicyError, match="'cuda.cublaslt' cannot run it: unmeasured"):
        compiled(target, kernels={"gemm_epilogue": KERNEL})


def test_a_library_that_offers_nothing_says_so(fake: FakeLibrary) -> None:
    fake.offers = 0
    decision = chosen(compiled(HERE, matmul="cublasLt"))
    assert "the library's heuristic offers no algorithm for it" in decision.rejected[KERNEL]


def test_without_a_driver_the_reason_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise BackendUnavailable("there is no NVIDIA GPU here; use target cpu")

    monkeypatch.setattr(cublaslt, "version", lambda: VERSION)
    monkeypatch.setattr(heuristic, "host_arch", nobody)
    assert "there is no NVIDIA GPU here" in chosen(compiled(HERE, matmul="cublasLt")).rejected[KERNEL]
