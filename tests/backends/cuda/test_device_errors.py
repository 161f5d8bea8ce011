"""What can be wrong with a GPU, a driver, an artifact or the toolchain: one line that names it, before any launch.

And what is left afterwards: the process, the other executables, and the one that failed once the cause is gone.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import runtime
from aicf.backends.cuda.compiler import toolchain
from aicf.backends.cuda.runtime import cublaslt, library
from aicf.backends.cuda.runtime import driver as driver_module
from aicf.backends.cuda.runtime.device_program import TensorMap, Windows
from aicf.backends.cuda.runtime.driver import OUT_OF_MEMORY, CudaDriver, DeviceFacts, DriverError
from aicf.backends.registry import resolve_target, target_spec
from aicf.compilation.compiled import CompiledModel
from aicf.errors import AicfError, ArtifactError, BackendUnavailable, CaptureError, PolicyError, UnsupportedOp
from aicf.support.extras import install
from aicf.tools.aicf_cli import main
from tests.backends.cuda.device_programs import device_executable, symbol_of
from tests.backends.cuda.device_tensor import DeviceTensor
from tests.backends.cuda.fake_driver import HOPPER, FakeDriver
from tests.backends.cuda.recorded_models import TARGET, SilentKernels, SilentLibrary, compiled
from tests.runtime.support import ADD_RELU, COUNTER, add_relu, executable, random

RNG = np.random.default_rng(53)
B = random(RNG, 6)
ILLEGAL_ADDRESS = 700


def add(gpu: FakeDriver) -> runtime.Executable:
    return device_executable(gpu, ADD_RELU, {"b": B})


def check_works(exe: runtime.Executable) -> None:
    x = random(RNG, 4, 6)
    for got, wanted in zip(exe(x), add_relu(x, B), strict=True):
        np.testing.assert_array_equal(got, wanted)


def one_line(error: BaseException) -> str:
    """The message of an error, which is one line."""
    text = str(error)
    assert "\n" not in text
    return text


# This machine does not fit

MACHINES: dict[str, tuple[DeviceFacts | None, str]] = {
    "no GPU": (None, "there is no NVIDIA GPU here (CUDA_VISIBLE_DEVICES may hide it); use target cpu"),
    "driver too old": (
        replace(HOPPER, driver=12080),
        "the NVIDIA driver supports CUDA 12.8, the code needs 13.0; install a newer driver",
    ),
    "older architecture": (
        replace(HOPPER, name="A100", capability=80),
        "the code is for sm_90a, and A100 is sm_80; compile with --target cuda:sm_80",
    ),
    "unknown old architecture": (
        replace(HOPPER, name="V100", capability=70),
        "the code is for sm_90a, and V100 has compute capability 7.0, for which this release makes no code; "
        "use target cpu",
    ),
    "unknown new architecture": (
        replace(HOPPER, name="B200", capability=100),
        "the code is for sm_90a, and B200 has compute capability 10.0, for which this release makes no code; "
        "use target cpu",
    ),
}


@pytest.mark.parametrize("case", MACHINES)
def test_a_machine_that_does_not_fit_is_told_before_any_launch(case: str, gpu: FakeDriver) -> None:
    """Nothing is allocated, loaded or launched; on the right machine the same executable runs."""
    gpu.device, message = MACHINES[case]
    exe = add(gpu)
    with pytest.raises(BackendUnavailable) as error:
        exe(random(RNG, 4, 6))
    assert one_line(error.value) == message
    assert not {"allocate", "load", "launch", "run"} & {name for name, _ in gpu.calls}
    gpu.device = HOPPER
    check_works(exe)


@pytest.mark.parametrize("case", MACHINES)
def test_asking_for_this_machines_gpu(case: str, gpu: FakeDriver) -> None:
    """`cuda` without an architecture asks the GPU; the error says what to write instead."""
    gpu.device, _ = MACHINES[case]
    wanted = {
        "no GPU": "there is no NVIDIA GPU here .*; use target cpu",
        "driver too old": None,
        "older architecture": None,
        "unknown old architecture": r"V100 \(compute capability 7.0\) runs none of sm_80, .*, sm_90a; use target cpu",
        "unknown new architecture": r"B200 \(compute capability 10.0\) runs none of sm_80, .*, sm_90a; use target cpu",
    }[case]
    if wanted is None:
        assert driver_module.host_arch() in ("sm_90a", "sm_80")
    else:
        with pytest.raises(BackendUnavailable, match=wanted) as error:
            driver_module.host_arch()
        one_line(error.value)


def test_an_unknown_architecture_is_a_policy_error() -> None:
    with pytest.raises(PolicyError, match="unknown cuda architecture 'sm_91'; legal: sm_80, .*sm_90a"):
        aicf.compile(PROGRAM.format(dtype="f32"), target="cuda:sm_91")


# The driver library


class Api(SimpleNamespace):
    """The driver's Python package, whose functions give back what `results` say: a status and values."""

    def __init__(self, **results: tuple[Any, ...] | BaseException) -> None:
        self.results = results
        names = {
            2: "CUDA_ERROR_OUT_OF_MEMORY",
            100: "CUDA_ERROR_NO_DEVICE",
            803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        }
        super().__init__(
            CUresult=lambda code: SimpleNamespace(name=names.get(code, "CUDA_ERROR")),
            cuGetErrorString=lambda status: (0, b"told by the driver"),
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        result = self.results[name]

        def call(*arguments: object) -> Any:
            if isinstance(result, BaseException):
                raise result
            return result

        return call


def real_driver(
    monkeypatch: pytest.MonkeyPatch, api: Api | ImportError, has_library: bool = True
) -> CudaDriver:
    """`CudaDriver` on a made-up package and library."""

    def load_package(name: str) -> Api:
        if isinstance(api, ImportError):
            raise api
        return api

    def load_library(name: str) -> Any:
        if not has_library:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(cuGraphLaunch=None)

    monkeypatch.setattr(driver_module, "import_module", load_package)
    monkeypatch.setattr(ctypes, "CDLL", load_library)
    return CudaDriver()


DRIVERS: dict[str, tuple[Api | ImportError, bool, str]] = {
    "package missing": (
        ImportError("No module named 'cuda'"),
        True,
        f"the package cuda-bindings does not import (No module named 'cuda'); {install('cuda')}",
    ),
    "library missing for the package": (
        Api(cuInit=RuntimeError("Failed to dlopen libcuda.so.1")),
        True,
        "this machine has no NVIDIA driver (libcuda.so.1); install one, or use target cpu",
    ),
    "library missing": (
        Api(cuInit=(0,)),
        False,
        "this machine has no NVIDIA driver (libcuda.so.1); install one, or use target cpu",
    ),
    "driver broken": (
        Api(cuInit=(803,)),
        True,
        "the NVIDIA driver does not start: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (told by the driver)",
    ),
}


@pytest.mark.parametrize("case", DRIVERS)
def test_no_driver(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api, has_library, message = DRIVERS[case]
    with pytest.raises(BackendUnavailable) as error:
        real_driver(monkeypatch, api, has_library)
    assert one_line(error.value) == message


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts with an error of its own; that means there are none."""
    assert real_driver(monkeypatch, Api(cuInit=(100,))).count() == 0


MAP = TensorMap(1, 0, "bf16", (64, 8), (128,), (64, 8), 128, 256, 0, "zeros")


class TensorMapApi(Api):
    """An API whose enumerations give the names of their members, and whose encoder keeps what it is given."""

    def __init__(self) -> None:
        super().__init__(cuInit=(0,), cuDeviceGetCount=(0, 1))
        self.image, self.given = ctypes.create_string_buffer(b"image" + b"\xff" * 123, 128), []
        self.version = 13000

    def __getattr__(self, name: str) -> Any:
        if name == "cuDriverGetVersion":
            return lambda: (0, self.version)
        if name in ("cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"):
            return lambda *given: (self.given.append(given), (0, self))[1]
        if name.startswith("CUtensorMap"):
            return Names()
        return int if name.startswith("cuuint") else super().__getattr__(name)

    def getPtr(self) -> int:
        return ctypes.addressof(self.image)


class Names:
    """An enumeration with every member."""

    def __getattr__(self, name: str) -> str:
        return name


def test_a_tensor_map_is_encoded_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Type, interleave, swizzle, L2 promotion and fill come from the map; nothing stands in for what is unknown."""
    api = TensorMapApi()
    driver = real_driver(monkeypatch, api)
    monkeypatch.setattr(driver, "_api", api)
    assert driver.encode(MAP, 1 << 20).startswith(b"image")
    other = replace(MAP, dtype="f64", swizzle=0, l2_promotion=64, interleave=16, out_of_bounds="nan")
    driver.encode(other, 1 << 20)
    said = [
        [str(entry).removeprefix("CU_TENSOR_MAP_") for entry in (given[0], *given[7:])] for given in api.given
    ]
    assert said == [
        [
            "DATA_TYPE_BFLOAT16",
            "INTERLEAVE_NONE",
            "SWIZZLE_128B",
            "L2_PROMOTION_L2_256B",
            "FLOAT_OOB_FILL_NONE",
        ],
        [
            "DATA_TYPE_FLOAT64",
            "INTERLEAVE_16B",
            "SWIZZLE_NONE",
            "L2_PROMOTION_L2_64B",
            "FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA",
        ],
    ]
    for changes in (
        {"dtype": "i1"},
        {"swizzle": 16},
        {"l2_promotion": 1},
        {"interleave": 8},
        {"out_of_bounds": "-"},
    ):
        (value,) = changes.values()
        with pytest.raises(ArtifactError, match=f"its tensor map says '{value}', which is none of "):
            driver.encode(replace(MAP, **changes), 1 << 20)


def test_windows_are_encoded_by_their_corners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to CUDA 13.1 the driver sets bit 21 of the second word for tensors of less than 128 KiB: it is cleared."""
    api = TensorMapApi()
    driver = real_driver(monkeypatch, api)
    monkeypatch.setattr(driver, "_api", api)
    windows = Windows((-1, -2), (0, -3), (2, 1))
    small = TensorMap(
        *(1, 0, "f16", (8, 9, 10, 2), (16, 144, 1440), (64, 128), 128, 256, 0, "zeros"), windows=windows
    )
    image = driver.encode(small, 4096)
    _, _, address, sizes, strides, lower, upper, channels, pixels, steps, *_ = api.given[0]
    assert (address, sizes, strides) == (4096, [8, 9, 10, 2], [16, 144, 1440])
    assert (lower, upper, channels, pixels, steps) == ([-1, -2], [0, -3], 64, 128, [1, 2, 1, 1])
    whole = bytes(api.image)
    cleared = int.from_bytes(whole, "little") & ~(1 << (64 + 21))
    assert image == cleared.to_bytes(128, "little") != whole
    assert driver.encode(replace(small, sizes=(8, 9, 10, 91)), 4096) != whole  # 131,040 bytes
    assert driver.encode(replace(small, sizes=(8, 9, 10, 92)), 4096) == whole
    api.version = 13020
    assert driver.encode(small, 4096) == whole


def test_the_drivers_own_shortage_is_told_with_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = real_driver(
        monkeypatch,
        Api(
            cuInit=(0,),
            cuDeviceGetCount=(0, 1),
            cuMemAlloc=(2,),
            cuMemHostAlloc=(2,),
            cuMemGetInfo=(0, 1000, 5000),
        ),
    )
    for allocate, what in ((driver.allocate, "GPU"), (driver.allocate_pinned, "pinned host")):
        with pytest.raises(BackendUnavailable) as error:
            allocate(70000)
        assert one_line(error.value) == (
            f"70,000 bytes of {what} memory cannot be allocated (1,000 of 5,000 bytes of the GPU are free); end other "
            "processes on it, or use smaller dims"
        )


# Memory


def test_too_little_memory_is_predicted(gpu: FakeDriver) -> None:
    """Before anything is requested: what is needed, on what, and what is free."""
    exe = add(gpu)
    peak = exe.memory()["peak@add_relu"]
    gpu.device = replace(HOPPER, memory_bytes=peak - 1)
    with pytest.raises(BackendUnavailable) as error:
        exe(random(RNG, 4, 6))
    assert one_line(error.value) == (
        f"@add_relu needs {peak:,} bytes of memory on GPU 0 (Fake H100), {peak - 1:,} of {peak - 1:,} are free; end "
        "other processes on it, or use smaller dims"
    )
    assert not gpu.named("allocate") and not gpu.named("launch")
    gpu.device = replace(HOPPER, memory_bytes=peak)
    check_works(exe)


def test_memory_that_is_gone_after_the_prediction(gpu: FakeDriver) -> None:
    """Another process was faster: the allocation fails, nothing leaks, and the next call works."""
    exe, other = add(gpu), add(gpu)
    check_works(other)
    held = gpu.live_bytes
    gpu.failures["allocate"] = OUT_OF_MEMORY
    with pytest.raises(AicfError, match="allocate failed"):
        exe(random(RNG, 4, 6))
    del gpu.failures["allocate"]
    gc.collect()
    assert gpu.live_bytes == held
    check_works(other)
    check_works(exe)


# Versions and types


def test_a_library_of_another_version(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithms hold for one version; the instruction is named, nothing was launched."""
    exe = compiled("library_call")
    gpu.kernels = SilentKernels()
    monkeypatch.setattr(library, "import_module", lambda name: SilentLibrary(gpu, "9.9.9"))
    x = np.zeros((64, 64), np.float16)
    with pytest.raises(BackendUnavailable) as error:
        exe(x)
    assert one_line(error.value) == (
        "instruction 'product' was compiled for cublasLt 1.2.3, here is 9.9.9: algorithms are valid for one version; "
        "pip install 'nvidia-cublas==1.2.3.*', or run aicf tune here and compile again"
    )
    assert not gpu.named("launch") and not gpu.named("allocate")
    monkeypatch.setattr(library, "import_module", lambda name: SilentLibrary(gpu))
    assert exe(x).shape == (64, 64)


def test_a_table_for_another_version_of_this_machines_library(
    gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cuda` is this machine with its library: a table measured with another one is refused before anything is
    compiled, an architecture that is named lists none and takes the table's."""
    table = Path(__file__).parents[3] / "benchmarks" / "tuning" / "h100.json"
    program = PROGRAM.format(dtype="f16")
    monkeypatch.setattr(cublaslt, "version", lambda: "13.0.2")
    assert target_spec(resolve_target("cuda")) == "cuda:sm_90a+cublasLt=13.0.2"
    with pytest.raises(PolicyError) as error:
        aicf.compile(program, target="cuda", tuning=table)
    assert one_line(error.value).startswith(
        "tuning: the table was measured on NVIDIA H100 80GB HBM3 with library cublasLt 13.1.0, this program is for "
        "library cublasLt 13.0.2; measure again on the device: aicf tune MODEL "
    )
    assert target_spec(resolve_target("cuda:sm_90a")) == "cuda:sm_90a"


def test_a_missing_library(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError("No module named 'nvmath'")

    monkeypatch.setattr(library, "import_module", missing)
    with pytest.raises(BackendUnavailable) as error:
        compiled("library_call")(np.zeros((64, 64), np.float16))
    assert one_line(error.value) == (
        f"instruction 'product' needs the library cublasLt (No module named 'nvmath'); {install('cuda')}"
    )


PROGRAM = """
func.func @f(%x : tensor<2x8x{dtype}> {{logical.name = "x", logical.role = "input"}})
    -> (tensor<2x2x{dtype}> {{logical.name = "y"}}) {{
  %y = logical.matmul %x, %x {{transpose_b}} : (tensor<2x8x{dtype}>, tensor<2x8x{dtype}>) -> tensor<2x2x{dtype}>
  func.return %y : tensor<2x2x{dtype}>
}}
"""


def test_an_op_that_the_target_does_not_run() -> None:
    """The op and its source are named, with what every kernel says."""
    graph = aicf.Graph("many")
    x = graph.input("x", (70000, 2, 2), "i8")
    graph.output(graph.matmul(x, x), "y")
    with pytest.raises(UnsupportedOp) as error:
        aicf.compile(graph, target=TARGET)
    assert "no kernel of target cuda runs 'matmul0' (logical.matmul)" in one_line(error.value)
    assert "cuda.gemm_simt: 70000 matrices are more than a grid has room for" in str(error.value)


def test_missing_toolkit_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What compiling lacks is named before a kernel is compiled."""
    real = toolchain.installed_version

    def version(package: str) -> str:
        if package == "nvidia-nvjitlink":
            raise PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(toolchain, "installed_version", version)
    with pytest.raises(BackendUnavailable) as error:
        aicf.compile(PROGRAM.format(dtype="f32"), target=TARGET)
    assert one_line(error.value) == (
        f"compiling for cuda needs the package nvidia-nvjitlink; {install('cuda')}"
    )


def test_toolkit_wheels_of_another_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their code would not load with the driver that is asked for."""
    monkeypatch.setattr(toolchain, "installed_version", lambda package: "13.9.1")
    with pytest.raises(BackendUnavailable) as error:
        aicf.compile(PROGRAM.format(dtype="f32"), target=TARGET)
    assert one_line(error.value) == (
        f"nvidia-nvvm 13.9.1 is not of the CUDA 13.0 line, whose code driver 580 loads; {install('cuda')}"
    )


# Without a GPU


@pytest.fixture
def model() -> CompiledModel:
    return compiled("chain")


def test_all_but_running_works_without_a_gpu(model: CompiledModel, gpu: FakeDriver, tmp_path: Path) -> None:
    """Compile, explain, sizes, IR, save, load; running says that there is none."""
    gpu.device = None
    path = tmp_path / "chain.aicf"
    model.save(path)
    for exe in (model, aicf.load(path)):
        assert "up0" in str(exe.explain()) and "norm_gemm" in str(exe.explain("up0"))
        assert exe.memory()["weights"] > 0 and exe.ir("emit") == model.ir("emit")
        for run in (exe, exe.bind, exe.run, exe.instantiate().fill):
            with pytest.raises(BackendUnavailable, match="there is no NVIDIA GPU here"):
                run({"x": np.zeros((1, 64), np.float16)})
    assert {name for name, _ in gpu.calls} <= {"count"}


def test_the_command_line_without_a_gpu(
    model: CompiledModel, gpu: FakeDriver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`explain` works; `run`, `bench` and `compile --target cuda` end with one line and status 1."""
    gpu.device = None
    path, program = tmp_path / "chain.aicf", tmp_path / "f.mlir"
    model.save(path)
    np.save(tmp_path / "x.npy", np.zeros((1, 64), np.float16))
    program.write_text(PROGRAM.format(dtype="f32"))
    assert main(["explain", str(path)]) == 0
    capsys.readouterr()
    for command in (
        ["run", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path)],
        ["bench", str(path)],
        ["compile", str(program), "-o", str(tmp_path / "f.aicf"), "--target", "cuda"],
    ):
        assert main(command) == 1
        error = capsys.readouterr().err
        assert "there is no NVIDIA GPU here" in error and error.count("\n") == 1
    assert "or name an architecture to compile for, as in cuda:sm_90a" in error


# Failures while it runs


def test_a_failing_launch_names_the_instruction(gpu: FakeDriver) -> None:
    """A checked run goes instruction by instruction; what failed for a passing reason works again."""
    exe = add(gpu)
    bound = exe.bind(x=random(RNG, 4, 6))
    bound.replay()
    bound.replay()
    (plan,) = exe.plan.programs
    gpu.failures["run"] = 1
    with pytest.raises(CaptureError) as error:
        bound.check()
    assert one_line(error.value) == "instruction 'sum' failed: run failed: fake error 1"
    del gpu.failures["run"]
    bound.check()
    symbol = symbol_of(plan, 1)
    gpu.failures[symbol] = ILLEGAL_ADDRESS
    with pytest.raises(CaptureError) as error:
        bound.check()
    assert one_line(error.value) == (
        "instruction 'act' failed: synchronize failed: fake error 700; a kernel broke the GPU context of this process, "
        "so every later use of the GPU fails: start a new process"
    )


@pytest.mark.parametrize("way", ["call", "run", "replay"])
def test_a_launch_that_fails_the_first_time_names_the_instruction(way: str, gpu: FakeDriver) -> None:
    """Without being asked: the first run of every GraphExec goes instruction by instruction. It counts as one run, the
    next goes as the graph, and a failed one does not count."""
    exe = add(gpu)
    x = random(RNG, 4, 6)
    bound = exe.bind(x=x)
    step: Callable[[], object] = {
        "call": lambda: exe(x),
        "run": lambda: exe.run({"x": x}),
        "replay": lambda: (bound.replay(2), bound.synchronize()),
    }[way]
    (plan,) = exe.plan.programs
    gpu.failures["run"] = 1
    with pytest.raises(CaptureError, match="instruction 'sum' failed: run failed: fake error 1"):
        step()
    del gpu.failures["run"]
    step()
    names = [symbol_of(plan, number) for number in range(3)]
    assert gpu.named("run")[-3:] == names and len(gpu.named("launch")) == (way == "replay")
    gpu.calls.clear()
    step()
    assert not gpu.named("run") and len(gpu.named("launch")) == (2 if way == "replay" else 1)
    check_works(exe)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("add_kernel", "instruction 'before' cannot be captured: add_kernel failed: fake error 1"),
        ("capture", "instruction 'product' cannot be captured: capture failed: fake error 1"),
        (
            "instantiate",
            "the graph of entry 'aicf_library_5f_call' cannot be made: instantiate failed: fake error 1",
        ),
        (
            "allow_shared",
            "instruction 'before' needs 0 bytes of shared memory: allow_shared failed: fake error 1",
        ),
    ],
)
def test_a_failing_capture_names_the_instruction(
    call: str, message: str, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.kernels = SilentKernels()
    monkeypatch.setattr(library, "import_module", lambda name: SilentLibrary(gpu))
    gpu.failures[call] = 1
    with pytest.raises(CaptureError) as error:
        compiled("library_call")(np.zeros((64, 64), np.float16))
    assert one_line(error.value) == message and not gpu.named("launch")


def test_after_a_broken_context_the_process_goes_on(gpu: FakeDriver) -> None:
    """Every later use of the GPU says what to do; the CPU still works, and giving everything back raises nothing."""
    exe, other, host = add(gpu), add(gpu), executable(ADD_RELU, {"b": B})
    check_works(exe)
    check_works(other)
    gpu.failures["launch"] = ILLEGAL_ADDRESS
    for each in (exe, other, exe):
        with pytest.raises(
            DriverError, match="a kernel broke the GPU context of this process.*start a new process"
        ):
            each(random(RNG, 4, 6))
        check_works(host)
    del exe, other
    gc.collect()
    runtime.shutdown()
    check_works(host)


Step = Callable[[], None]
"""What is done on the device, with a check of the results; done again after it failed."""


def _first_call(gpu: FakeDriver) -> Step:
    exe = add(gpu)
    return lambda: check_works(exe)


def _arrays_of_the_device(gpu: FakeDriver) -> Step:
    """The graph is pointed at other memory, and back."""
    exe = add(gpu)
    check_works(exe)
    tensors = [DeviceTensor(gpu, random(RNG, 4, 6)) for _ in range(2)]

    def step() -> None:
        for x in tensors:
            for got, wanted in zip(exe(x), add_relu(x.array, B), strict=True):
                np.testing.assert_array_equal(got, wanted)
        check_works(exe)

    return step


def _bound_arrays(gpu: FakeDriver) -> Step:
    exe = add(gpu)
    x, y = DeviceTensor(gpu, random(RNG, 4, 6)), DeviceTensor(gpu, np.full((4, 6), np.nan, np.float32))
    bound = exe.instantiate()

    def step() -> None:
        bound.bind({"x": x, "y": y})
        y.array[...] = np.nan
        bound.replay()
        bound.synchronize()
        np.testing.assert_array_equal(y.array, add_relu(x.array, B)[0])

    return step


def _given_outputs(gpu: FakeDriver) -> Step:
    exe = add(gpu)
    x = random(RNG, 4, 6)
    y, z = DeviceTensor(gpu, np.full((4, 6), np.nan, np.float32)), np.full((4, 6), np.nan, np.float32)

    def step() -> None:
        y.array[...], z[...] = np.nan, np.nan
        exe.run({"x": x}, out={"y": y, "z": z})
        for got, wanted in zip((y.array, z), add_relu(x, B), strict=True):
            np.testing.assert_array_equal(got, wanted)

    return step


def _state(gpu: FakeDriver) -> Step:
    w, x = random(RNG, 3), random(RNG, 3)
    exe = device_executable(gpu, COUNTER, {"w": w})

    def step() -> None:
        exe.set_state({"w": w})
        exe(x)
        np.testing.assert_array_equal(exe.state()["w"], w + x)

    return step


@pytest.mark.parametrize("make", [_first_call, _arrays_of_the_device, _bound_arrays, _given_outputs, _state])
def test_every_driver_call_may_fail(make: Callable[[FakeDriver], Step], gpu: FakeDriver) -> None:
    """Each in turn, once: an error of one line; nothing leaks, and both executables work afterwards."""
    other = add(gpu)
    check_works(other)
    before = _held(gpu)
    step = make(gpu)
    gpu.calls.clear()
    step()
    calls = [name for name, _ in gpu.calls]
    assert len(set(calls)) >= 6
    del step
    gc.collect()
    for number in _not_closing(calls):
        step = make(gpu)
        gpu.calls.clear()
        gpu.fail_at = number + 1
        with pytest.raises(AicfError) as error:
            step()
        assert gpu.calls[number][0] == calls[number] and gpu.fail_at is None
        assert calls[number] in one_line(error.value), calls[number]
        check_works(other)
        step()
        del step, error
        gc.collect()
        assert _held(gpu) == before, calls[number]


def _not_closing(calls: Sequence[str]) -> Iterator[int]:
    """The calls that are not made to give something back: those run in finalizers, from where nothing is raised."""
    for number, (call, following) in enumerate(zip(calls, [*calls[1:], ""], strict=True)):
        if not {call, following} & {"close_stream", "close_event", "free", "free_pinned"}:
            yield number


def _held(gpu: FakeDriver) -> tuple[int, ...]:
    """Bytes of memory that the runtime holds, and what is open on the driver, by number."""
    kinds = (gpu.pinned, gpu.queues, gpu.modules, gpu.graphs, gpu.executables)
    return (runtime.statistics("device").live_bytes, gpu.contexts, *(len(kind) for kind in kinds))
