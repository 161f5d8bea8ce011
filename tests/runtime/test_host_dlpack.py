"""Arrays of other libraries in memory of the host: bf16 too, of which NumPy's reader of DLPack knows nothing."""

from __future__ import annotations

import gc
import weakref
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import aicf
from aicf.runtime.dlpack import DeviceView, capsule_of, host_array
from aicf.runtime.tensors import element_name

RNG = np.random.default_rng(0)


class Tensor:
    """A tensor of a library that has bf16 and speaks DLPack."""

    capsules: ClassVar[list[object]] = []
    """What was given. One of ours that goes while NumPy raises would take the error along."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> object:
        values = self.values
        steps = tuple(stride // values.itemsize for stride in values.strides)
        dtype = element_name(values.dtype)
        view = DeviceView(values.ctypes.data, values.shape, steps, dtype, (1, 0), False, self)
        self.capsules.append(capsule_of(view))
        return self.capsules[-1]


class Locked(Tensor):
    """One whose owner does not give it."""

    def __dlpack__(self, **options: Any) -> object:
        raise BufferError("the tensor is locked; unlock it")


def halves(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("make", [lambda: halves(3, 5), lambda: halves(5, 3).T, lambda: halves(6, 5)[::2]])
def test_bf16_is_read_where_it_lies(make: Any) -> None:
    values = make()
    array = host_array(Tensor(values))
    assert array.dtype == ml_dtypes.bfloat16 and array.ctypes.data == values.ctypes.data
    np.testing.assert_array_equal(array.astype(np.float64), values.astype(np.float64))


def test_the_array_keeps_its_owner() -> None:
    tensor = Tensor(halves(1000, 7))
    values, gone = tensor.values.astype(np.float64), weakref.ref(tensor)
    array = host_array(tensor)
    del tensor
    Tensor.capsules.clear()
    gc.collect()
    assert gone() is not None
    np.testing.assert_array_equal(array.astype(np.float64), values)
    del array
    gc.collect()
    assert gone() is None


def test_a_program_reads_and_writes_bf16_of_others() -> None:
    graph = aicf.Graph("twice")
    x = graph.input("x", (4, 300), dtype="bf16")
    graph.output(graph.add(x, x), "y")
    exe = aicf.compile(graph, target="cpu")
    given, y = halves(4, 300), halves(4, 300)
    twice = 2 * given.astype(np.float64)  # exact in bf16
    np.testing.assert_array_equal(exe(Tensor(given)).astype(np.float64), twice)
    exe.bind(x=Tensor(given), y=Tensor(y)).replay()
    np.testing.assert_array_equal(y.astype(np.float64), twice)


def test_what_is_not_given_is_told() -> None:
    graph = aicf.Graph("same")
    graph.output(graph.relu(graph.input("x", (2,))), "y")
    exe = aicf.compile(graph, target="reference")
    with pytest.raises(
        aicf.InputMismatch, match="input 'x': Locked gives no host array: the tensor is locked"
    ):
        exe(Locked(np.zeros(2, np.float32)))
