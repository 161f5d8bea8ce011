"""Cubins depend on the text of a kernel: not on what was compiled before, in which process, or with whose steps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import aicf
from aicf.backends.base import Launch
from aicf.backends.cuda.compiler import build, toolchain, worker_pool
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import KernelError, compile_kernel, compile_kernels
from aicf.backends.cuda.compiler.worker_pool import CompilePool
from aicf.backends.cuda.runtime.device_program import Address
from aicf.errors import BackendUnavailable, CaptureError

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


@pytest.fixture(autouse=True)
def second_kernel_starts_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users; other tests here compile a few kernels in their own process."""
    monkeypatch.setattr(worker_pool, "STARTS_WITH", 2)


def test_our_linear_steps_give_the_bytes_of_numbas(monkeypatch: pytest.MonkeyPatch) -> None:
    code = _loop("loop", 3)
    ours = compile_kernel(code, ARCH)
    monkeypatch.setattr(toolchain, "linear_passes", nullcontext)
    assert compile_kernel(code, ARCH) == ours


def test_bytes_do_not_depend_on_order_or_process() -> None:
    """Kernels side by side, in processes of their own, and one after the other in the opposite order."""
    codes = [_loop("first", 2), _loop("second", 5), _loop("the_third", 7)]
    together = _side_by_side(codes)
    alone = {code.symbol: compile_kernel(code, ARCH) for code in reversed(codes)}
    assert together == alone
    assert len(set(alone.values())) == 3


def _side_by_side(codes: Sequence[KernelCode]) -> dict[str, bytes]:
    with CompilePool(ARCH, compile_kernel) as pool:
        for code in codes:
            pool.add(code)
        return pool.images()


@pytest.mark.parametrize("count", [1, 3])
def test_a_single_kernel_is_compiled_here_and_several_elsewhere(count: int) -> None:
    here: list[str] = []

    def noted(code: KernelCode, arch: str) -> bytes:
        here.append(code.name)
        return compile_kernel(code, arch)

    names = ["first", "second", "the_third"][:count]
    with CompilePool(ARCH, noted) as pool:
        for name in names:
            pool.add(_loop(name, 2))
        assert len(pool.images()) == count
    assert here == (names if count == 1 else [])


def test_more_kernels_than_processes_are_all_compiled() -> None:
    """A process that has compiled a kernel gets the next one."""
    codes = [_loop(f"kernel_{top}", top) for top in range(2 * (os.cpu_count() or 1) + 1)]
    found = _side_by_side(codes)
    assert list(found) == [code.symbol for code in codes]
    assert found[codes[-1].symbol] == compile_kernel(codes[-1], ARCH)


def test_a_pool_that_is_left_early_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No process and no file."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyError), CompilePool(ARCH, compile_kernel) as pool:
        pool.add(_loop("first", 2))
        pool.add(_loop("second", 5))
        worker = pool._worker
        raise KeyError
    assert worker is not None and worker._process.returncode is not None
    assert not list(tmp_path.iterdir())


def test_the_cache_is_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is compiled; a kernel of another text is."""
    monkeypatch.setenv("AICF_CACHE_DIR", str(tmp_path))
    compiled: list[str] = []

    def noted(code: KernelCode, arch: str) -> bytes:
        compiled.append(code.symbol)
        return compile_kernel(code, arch)

    monkeypatch.setattr(toolchain, "compile_kernel", noted)
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

    monkeypatch.setattr(toolchain, "installed_version", version)
    with pytest.raises(BackendUnavailable, match=message.replace("[", r"\[")):
        compile_kernels([_loop("loop", 3)], ARCH)


def test_what_a_dead_worker_lacks_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends at once, whether it has read its task or not, costs time and nothing else."""
    codes = [_loop("first", 2), _loop("second", 5)]
    monkeypatch.setattr(worker_pool, "WORKER", "this")  # python -m this: prints a poem and reads nothing
    found = _side_by_side(codes)
    assert found == {code.symbol: compile_kernel(code, ARCH) for code in codes}


def test_a_process_that_dies_costs_its_kernel_alone() -> None:
    deadly = KernelCode("deadly", "def deadly(x):\n    pass\n__import__('os')._exit(1)\n", ("ptr",), 32)
    others = [_loop(f"kernel_{top}", top) for top in range((os.cpu_count() or 1) + 1)]
    with CompilePool(
        ARCH, lambda code, arch: b"here" if code is deadly else compile_kernel(code, arch)
    ) as pool:
        for code in (deadly, *others):
            pool.add(code)
        found = pool.images()
    assert found.pop(deadly.symbol) == b"here"
    assert found == {code.symbol: compile_kernel(code, ARCH) for code in others}


# Errors

MISTAKES = {
    "Numba": ("def k(out):\n    x = missing(out)\n", "TypingError: NameError: name 'missing' is not defined"),
    "nvJitLink": (
        "def k(out):\n    wait_for_predecessors()\n",
        "nvJitLinkError: nvJitLink error log: ptxas application ptx input, line .* requires .target sm_90 or higher",
    ),
    "Python": ("def k(out):\n    x =\n", r"SyntaxError: invalid syntax \(<wrong>, line 2\)"),
}
"""Text that each part of the toolchain refuses on an older GPU, and its error in one line."""


def _wrong(part: str) -> KernelCode:
    return KernelCode("wrong", MISTAKES[part][0], ("ptr",), 32)


@pytest.mark.parametrize("part", MISTAKES)
def test_a_kernel_that_does_not_compile_is_told_in_one_line(part: str) -> None:
    """The kernel and the reason; the foreign error is the cause."""
    code = _wrong(part)
    with pytest.raises(KernelError, match=MISTAKES[part][1]) as error:
        compile_kernel(code, "sm_80")
    assert error.value.symbol == code.symbol and f"kernel '{code.symbol}'" in error.value.message
    assert "\n" not in str(error.value) and type(error.value.__cause__).__module__ != "aicf.errors"


@pytest.mark.parametrize("worker", ["aicf.backends.cuda.compiler.worker", "this"])
def test_what_a_worker_said_goes_with_the_error(worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is on the terminal: not the error of a kernel, which is raised here, nor how the worker ended."""
    monkeypatch.setattr(worker_pool, "WORKER", worker)
    wrong = _wrong("Numba")
    longer = replace(wrong, source=wrong.source + "    # and more" * 100)
    with pytest.raises(KernelError, match="name 'missing' is not defined") as error:
        _side_by_side([longer, _loop("right", 4)])
    (note,) = error.value.__notes__
    assert note.startswith(f"{worker} ended with status 0")
    assert ("Traceback" in note) == (worker != "this")


def test_a_kernel_that_does_not_compile_names_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for the user of the compiler; the toolchain's message is after it."""
    graph = aicf.Graph("g")
    graph.output(graph.relu(graph.input("x", (8, 16), "f16"), name="act"), "y")

    def broken(launch: Launch) -> list[KernelLaunch]:
        return [KernelLaunch(_wrong("Numba"), (Address(1, 0),), (1, 1, 1), (32, 1, 1))]

    monkeypatch.setattr(build, "emitter", lambda kernel: broken)
    with pytest.raises(CaptureError) as error:
        aicf.compile(graph, target=f"cuda:{ARCH}")
    assert error.value.message.startswith(
        f"instruction 'act': kernel 'cuda.generated' does not compile for {ARCH}: "
        "TypingError: NameError: name 'missing' is not defined; forbid it in the policy "
    )
    assert isinstance(error.value.__cause__, KernelError)
