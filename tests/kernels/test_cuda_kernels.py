"""Kernels of packages for GPUs, without one: what they compile to, how they are launched, and what is refused."""

from __future__ import annotations

import re

import pytest
from numba import cuda
from numba.cuda import types

import aicf
from aicf.backends.cuda.compiler.code import Cubin
from aicf.backends.cuda.runtime.device_program import Address, Scalar
from aicf.backends.cuda.runtime.storage import read
from aicf.errors import CaptureError, PolicyError
from aicf.kernels import CudaSource, LaunchShape
from tests.backends.cuda.sass import SPILLS, listing
from tests.kernels import rms_norm

SHAPE = (6, 640)


def program(shape=SHAPE, dtype="f32"):
    graph = aicf.Graph("norm")
    x, scale = graph.input("x", shape, dtype), graph.input("scale", shape[-1:], dtype)
    graph.output(graph.rms_norm(x, scale, epsilon=1e-3, name="norm"), "y")
    return graph


def compiled(kernel, **more):
    policy = {"kernels": {"norm": kernel.id}}
    return aicf.compile(program(**more), target="cuda:sm_90a", policy=policy)


def node_of(exe):
    module, cubins = read(exe.native.code)
    (node,) = module.programs[0].kernels
    return module, node, cubins[node.symbol]


def test_cuda_source_is_launched_with_pointers_and_numbers() -> None:
    exe = compiled(rms_norm.define_source())
    module, node, _ = node_of(exe)
    assert (node.grid, node.block, node.order) == ((6, 1, 1), (256, 1, 1), "aaass")
    assert node.scalars == (Scalar("i64", 640), Scalar("f64", 1e-3))
    assert [address.base for address in node.addresses] == [1, 2, 3]  # the binds x, scale and y
    assert module.toolchain["nvidia-cuda-nvrtc"].startswith("13.0.")


def test_cuda_source_reduces_in_shared_memory_and_spills_nothing() -> None:
    module, node, code = node_of(compiled(rms_norm.define_source()))
    (stored,) = module.cubins
    assert stored.stack_bytes == 0 and stored.shared_bytes >= 4 * rms_norm.THREADS
    found = listing(Cubin(node.symbol, code, stored.registers, 0, 0))
    assert not any(spill in line for line in found for spill in SPILLS)
    assert any("MUFU.RSQ" in line for line in found) and any("BAR.SYNC" in line for line in found)


def test_a_numba_kernel_gets_arrays_as_numba_passes_them() -> None:
    """The arguments are those that Numba's own entry takes, in its PTX: one of 8 bytes each."""
    _, node, _ = node_of(compiled(rms_norm.define_numba()))
    matrix, vector = types.Array(types.float32, 2, "C"), types.Array(types.float32, 1, "C")
    ptx, _ = cuda.compile(
        rms_norm.rms_norm_block,
        types.void(matrix, vector, matrix, types.float64),
        device=False,
        abi="numba",
        cc=(9, 0),
        output="ptx",
    )
    text = ptx if isinstance(ptx, str) else bytes(ptx).decode()
    parameters = re.findall(r"\.param \.(\w+)", text)
    assert len(parameters) == len(node.order)
    assert [each in ("f64", "b64") for each in parameters[-1:]] == [True] and node.order[-1] == "s"
    rows, columns = SHAPE
    steps = [0, 0, rows * columns, 4, Address, rows, columns, 4 * columns, 4]
    assert described(node)[:9] == steps and described(node)[-1] == 1e-3


def described(node):
    scalars, addresses = iter(node.scalars), iter(node.addresses)
    return [next(scalars).value if letter == "s" else type(next(addresses)) for letter in node.order]


@pytest.mark.parametrize("define", [rms_norm.define_source, rms_norm.define_numba])
def test_the_same_bytes_each_time(define, tmp_path, monkeypatch) -> None:
    codes = set()
    for folder in ("first", "second"):
        monkeypatch.setenv("AICF_CACHE_DIR", str(tmp_path / folder))
        codes.add(compiled(define()).native.code)
    assert len(codes) == 1


def test_headers_of_the_toolkit() -> None:
    """Of short floats, which are no types of the language."""
    text = "#include <cuda_fp16.h>\n" + rms_norm.SOURCE.replace(
        "row[c] * row[c]", "float(__float2half(row[c])) * row[c]"
    )
    _, node, code = node_of(compiled(rms_norm.define_source(source=text)))
    sass = listing(Cubin(node.symbol, code, 0, 0, 0))
    assert any("F2F" in line or "F2FP" in line for line in sass)


def test_options_of_the_compiler() -> None:
    """A macro in place of a number of the text; what is not passed on is refused."""
    text = rms_norm.SOURCE.replace("sums[256]", "sums[ROOM]")
    exe = compiled(
        rms_norm.define_source(source=text, options=("-DROOM=512", "--std=c++17", "--use_fast_math"))
    )
    assert node_of(exe)[0].cubins[0].shared_bytes >= 4 * 512
    with pytest.raises(CaptureError, match="option --maxrregcount=8 is not passed on"):
        compiled(rms_norm.define_source(options=("--maxrregcount=8",)))


def test_the_cheaper_one_is_chosen() -> None:
    source, numba = rms_norm.define_source(cost_us=0.5), rms_norm.define_numba(cost_us=0.6)
    explained = str(aicf.compile(program(), target="cuda:sm_90a").explain("norm"))
    assert f"by {source.id}" in explained and f"not {numba.id}: predicted 0.6 us, not 0.5" in explained


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (LaunchShape((1, 1, 1), (2048, 1, 1)), "has more threads than the 1024"),
        (LaunchShape((1, 70_000, 1), (32, 1, 1)), "has more blocks than"),
        (LaunchShape((0, 1, 1), (32, 1, 1)), "each is three sizes of at least 1"),
        (
            LaunchShape((1, 1, 1), (32, 1, 1), 1 << 20),
            "a block takes 1048576 bytes of shared memory, sm_90a has",
        ),
        ("one block", "launch gives 'one block'; it is a LaunchShape"),
    ],
)
def test_launches_that_no_gpu_runs(launch, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        compiled(rms_norm.define_source(launch=launch))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_element_types_that_numba_has_not(dtype: str) -> None:
    with pytest.raises(PolicyError, match=f"element type {dtype} has no arrays in Numba"):
        compiled(rms_norm.define_numba(), dtype=dtype)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (rms_norm.SOURCE.replace("rsqrtf", "rsqrtff"), 'identifier "rsqrtff" is undefined'),
        (rms_norm.SOURCE.replace('extern "C"', ""), "it defines no kernel rms_norm that is extern"),
    ],
)
def test_cuda_source_that_does_not_compile(source: str, message: str) -> None:
    with pytest.raises(CaptureError, match=message) as error:
        compiled(rms_norm.define_source(source=source))
    assert "instruction 'norm'" in error.value.message and "\n" not in error.value.message


def text_in_a_kernel(x, scale, y, epsilon):
    y[0, 0] = "text"


def test_a_numba_kernel_that_does_not_compile() -> None:
    with pytest.raises(
        CaptureError, match="instruction 'norm': kernel 'acme.rms_norm_numba' does not compile"
    ):
        compiled(rms_norm.define_numba(function=text_in_a_kernel))


def test_definitions_that_lack_something() -> None:
    with pytest.raises(PolicyError, match="the CUDA source has no kernel 'rms'"):
        CudaSource(rms_norm.SOURCE, "rms")
    with pytest.raises(PolicyError, match="runs on a GPU: give its launch"):
        rms_norm.define_source(launch=None)
