"""Cubins depend on the text of a kernel: not on what was compiled before, in which process, or with whose steps."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from aicf.backends.cuda import toolchain
from aicf.backends.cuda.code import KernelCode
from aicf.backends.cuda.toolchain import compile_kernel, compile_kernels, compile_side_by_side
from aicf.errors import BackendUnavailable

ARCH = "sm_90a"


def _loop(name: str, factor: int) -> KernelCode:
    """Variables assigned in a loop, in both branches of a condition, and in straight code."""
    source = f"""def {name}(x, y, n):
    i = i32(cuda.blockIdx.x * 64 + cuda.threadIdx.x)
    a = f32(0)
    b = f32(1)
    top = f32(0)
    for k in range(n):
        value = load_f32(u64(x + u64(i32(i * n + k) * 4)))
        a = a + value * f32({factor})
        if value > top:
            top = value
            b = b * f32(0.5)
        else:
            b = b + a
        a = a - top
    a = a + b
    a = a * top
    if i < n:
        store_f32(u64(y + u64(i * 4)), a)
"""
    return KernelCode(name, source, ("ptr", "ptr", "i32"), threads=64)


def test_our_linear_steps_give_the_bytes_of_numbas(monkeypatch: pytest.MonkeyPatch) -> None:
    code = _loop("loop", 3)
    ours = compile_kernel(code, ARCH)
    monkeypatch.setattr(toolchain, "linear_passes", nullcontext)
    assert compile_kernel(code, ARCH) == ours


def test_bytes_do_not_depend_on_order_or_process() -> None:
    """Two kernels side by side, in two processes, and one after the other in the opposite order."""
    codes = [_loop("first", 2), _loop("second", 5)]
    together = compile_side_by_side(codes, ARCH)
    alone = {code.symbol: compile_kernel(code, ARCH) for code in reversed(codes)}
    assert together == alone
    assert len(set(alone.values())) == 2


def test_the_cache_is_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is compiled; a kernel of another text is."""
    monkeypatch.setenv("AICF_CACHE_DIR", str(tmp_path))
    compiled: list[str] = []

    def noted(codes: list[KernelCode], arch: str) -> dict[str, bytes]:
        compiled.extend(code.symbol for code in codes)
        return {code.symbol: compile_kernel(code, arch) for code in codes}

    monkeypatch.setattr(toolchain, "compile_side_by_side", noted)
    one, other = _loop("one", 2), _loop("one", 7)
    first = compile_kernels([one], ARCH)
    assert compile_kernels([one, other], ARCH)[one.symbol] == first[one.symbol]
    assert compiled == [one.symbol, other.symbol]


def test_a_damaged_entry_of_the_cache_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AICF_CACHE_DIR", str(tmp_path))
    code = _loop("loop", 3)
    first = compile_kernels([code], ARCH)
    (entry,) = tmp_path.rglob("*.cubin")
    whole = entry.read_bytes()
    for damaged in (whole[:-1], whole[:40] + b"x" + whole[41:], b""):
        entry.write_bytes(damaged)
        assert compile_kernels([code], ARCH) == first
        assert entry.read_bytes() == whole


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"nvidia-nvvm": None}, "needs the package nvidia-nvvm; pip install "),
        ({"nvidia-nvjitlink": "13.4.1"}, "nvidia-nvjitlink 13.4.1 is not of the CUDA 13.0 line"),
    ],
)
def test_another_toolchain_is_refused(
    versions: dict[str, str | None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        found = versions.get(package, "13.0.88")
        if found is None:
            raise toolchain.PackageNotFoundError(package)
        return found

    monkeypatch.setattr(toolchain, "version", version)
    with pytest.raises(BackendUnavailable, match=message.replace("[", r"\[")):
        compile_kernels([_loop("loop", 3)], ARCH)


def test_what_a_dead_worker_lacks_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends at once, whether it has read its task or not, costs time and nothing else."""
    codes = [_loop("first", 2), _loop("second", 5)]
    monkeypatch.setattr(toolchain, "WORKER", "this")  # python -m this: prints a poem and reads nothing
    found = compile_side_by_side(codes, ARCH)
    assert found == {code.symbol: compile_kernel(code, ARCH) for code in codes}
