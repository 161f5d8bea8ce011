"""Strided views against NumPy: the same elements, and a copy only where NumPy needs one too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import NDArray
from xdsl.ir import Block, Operation, SSAValue

from aicf.dialects.logical import BroadcastOp, ReshapeOp, SliceOp, TransposeOp
from aicf.dialects.types import tensor, tensor_info
from aicf.passes.bodies.factored_views import strided
from aicf.passes.bodies.view_reconstruction import view_ops
from aicf.passes.bodies.views import View

Array = NDArray[np.int64]


def seen(view: View, base: Array) -> Array:
    """What `view` shows of a contiguous `base`."""
    flat = base.reshape(-1)[view.offset :]
    return as_strided(flat, view.shape, [step * flat.itemsize for step in view.strides])


def divisors(count: int) -> list[int]:
    return [number for number in range(1, count + 1) if count % number == 0]


@st.composite
def shapes_of(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    """A random factorisation of `count`, with dims of size 1 in between."""
    sizes: list[int] = []
    while count > 1:
        size = draw(st.sampled_from(divisors(count)))
        sizes.append(size)
        count //= size
        if len(sizes) == 4:
            break
    return (*sizes, count)


def step(draw: st.DrawFn, view: View, array: Array) -> tuple[View | None, Array, bool]:
    """One random view op on both; whether NumPy can do it without a copy."""
    kind = draw(st.sampled_from(["transpose", "slice", "broadcast", "window", "reshape", "reshape"]))
    rank = array.ndim
    if kind == "transpose":
        order = draw(st.permutations(range(rank)))
        return view.transposed(order), array.transpose(order), True
    if kind == "slice":
        starts = [draw(st.integers(0, size - 1)) for size in array.shape]
        steps = [draw(st.integers(1, 3)) for _ in array.shape]
        rooms = zip(array.shape, starts, steps, strict=True)
        sizes = [draw(st.integers(1, -(-(size - start) // by))) for size, start, by in rooms]
        cut = zip(starts, sizes, steps, strict=True)
        window = tuple(slice(a, a + (n - 1) * by + 1, by) for a, n, by in cut)
        return view.sliced(starts, sizes, steps), array[window], True
    if kind == "broadcast" and rank < 4:
        shape = [draw(st.integers(1, 3)) if size == 1 else size for size in array.shape]
        at = draw(st.integers(0, rank))
        shape.insert(at, draw(st.integers(1, 3)))
        dimensions = [dim if dim < at else dim + 1 for dim in range(rank)]
        return view.broadcast(dimensions, shape), np.broadcast_to(np.expand_dims(array, at), shape), True
    if kind == "window" and rank < 4:
        size, stride, dilation = (draw(st.integers(1, 3)) for _ in range(3))
        count = (array.shape[-1] - (size - 1) * dilation - 1) // stride + 1 if rank else 0
        if count > 0:
            every = sliding_window_view(array, (size - 1) * dilation + 1, -1)
            windows = every[..., ::stride, ::dilation]
            return view.windows(windows.shape, [stride], [dilation]), windows, True
    shape = draw(shapes_of(array.size))
    try:
        return view.reshaped(shape), np.reshape(array, shape, copy=False), True
    except ValueError:
        return view.reshaped(shape), np.reshape(array, shape), False


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_chains_show_what_numpy_shows(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    base = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    view, array = View.whole(shape), base
    for _ in range(data.draw(st.integers(1, 5))):
        result, expected, is_free = step(data.draw, view, array)
        if result is None:
            assert not is_free, f"{view} to {expected.shape} needs no copy"
            return
        assert result.shape == expected.shape
        np.testing.assert_array_equal(seen(result, base), expected)
        view, array = result, expected


def test_whole_is_contiguous() -> None:
    assert View.whole((2, 3, 4)) == View(0, (2, 3, 4), (12, 4, 1))
    assert View.whole((2, 3)).is_whole
    assert View(0, (1, 3), (99, 1)).is_whole  # the stride of a size-1 dim says nothing
    assert not View(3, (1, 3), (3, 1)).is_whole
    assert not View(0, (3, 2), (1, 3)).is_whole


@pytest.mark.parametrize(
    ("view", "shape", "strides"),
    [
        (View(0, (4, 6), (1, 4)), (4, 2, 3), (1, 12, 4)),
        (View(0, (4, 6), (1, 4)), (24,), None),
        (View(5, (2, 3), (10, 1)), (6,), None),
        (View(5, (2, 3), (3, 1)), (6,), (1,)),
        (View(0, (4, 3), (0, 1)), (2, 2, 3), (0, 0, 1)),
        (View(0, (4, 3), (0, 1)), (12,), None),
        (View(0, (4, 3), (0, 0)), (12,), (0,)),
    ],
)
def test_reshapes(view: View, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    expected = None if strides is None else View(view.offset, shape, strides)
    assert view.reshaped(shape) == expected


@pytest.mark.parametrize(
    ("base", "between", "window"),
    [
        ((3, 2, 4, 2), (4, 6, 2), ((1, 3, 1), (2, 2, 1), (1, 1, 1))),
        ((3, 16), (4, 12), ((0, 2, 2), (3, 5, 1))),
        ((5, 6), (3, 10), ((1, 2, 1), (0, 5, 2))),
    ],
)
def test_a_slice_of_a_reshape_is_found_again(
    base: tuple[int, ...], between: tuple[int, ...], window: tuple[tuple[int, int, int], ...]
) -> None:
    """The strides follow the dims of the reshape, which need not split those of the base."""
    reshaped = View.whole(base).reshaped(between)
    assert reshaped is not None
    view = reshaped.sliced(*zip(*window, strict=True))
    ops = view_ops(Block(arg_types=[tensor(base, "f32")]).args[0], view)
    reached: View | None = View.whole(base)
    for op in ops:
        reached = None if reached is None else reached.then(op)
    assert reached is not None and tensor_info(ops[-1].results[0].type).shape == view.shape
    numbers = np.arange(np.prod(base))
    np.testing.assert_array_equal(seen(reached, numbers), seen(view, numbers))


def view_op(draw: st.DrawFn, value: SSAValue, array: Array) -> tuple[Operation, Array]:
    """A random view op, and what NumPy gives for it."""
    kind = draw(st.sampled_from(["transpose", "slice", "broadcast", "reshape", "reshape"]))
    if kind == "transpose":
        order = draw(st.permutations(range(array.ndim)))
        return TransposeOp(value, order), array.transpose(order)
    if kind == "slice":
        starts = [draw(st.integers(0, size - 1)) for size in array.shape]
        steps = [draw(st.integers(1, 3)) for _ in array.shape]
        rooms = zip(array.shape, starts, steps, strict=True)
        sizes = [draw(st.integers(1, -(-(size - start) // by))) for size, start, by in rooms]
        cut = zip(starts, sizes, steps, strict=True)
        return SliceOp(value, starts, sizes, steps), array[
            tuple(slice(a, a + (n - 1) * by + 1, by) for a, n, by in cut)
        ]
    if kind == "broadcast":
        shape = (draw(st.integers(1, 3)), *array.shape)
        return BroadcastOp(value, range(1, len(shape)), shape), np.broadcast_to(array, shape)
    shape = draw(shapes_of(array.size))
    return ReshapeOp(value, shape), array.reshape(shape)


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_strides_of_a_chain_that_joins_dims_show_what_numpy_shows(data: st.DataObject) -> None:
    """They are found wherever each view of the chain has strides, and maybe where only the last one has."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    base = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    value: SSAValue = Block(arg_types=[tensor(shape, "f32")]).args[0]
    array, chain = base, list[Operation]()
    view: View | None = View.whole(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        op, array = view_op(data.draw, value, array)
        view = None if view is None else view.then(op)
        value = op.results[0]
        chain.append(op)
    found = strided(chain)
    assert found is not None or view is None
    if found is not None:
        np.testing.assert_array_equal(seen(found, base), array)


@pytest.mark.parametrize(
    ("starts", "sizes", "steps", "expected"),
    [
        ((0, 0), (3, 4), (1, 1), View(0, (3, 4), (8, 2))),
        ((1, 4), (2, 4), (1, 1), View(9, (2, 4), (8, 2))),
        ((0, 5), (3, 2), (1, 2), View(3, (3, 2), (8, 4))),
        ((0, 1), (3, 2), (1, 4), View(2, (3, 2), (8, 1))),
        ((0, 2), (3, 4), (1, 1), None),
        ((0, 0), (3, 8), (1, 1), None),
    ],
)
def test_a_slice_keeps_strides_of_a_joined_dim(
    starts: tuple[int, ...], sizes: tuple[int, ...], steps: tuple[int, ...], expected: View | None
) -> None:
    """`[3, 4, 2]` as `[3, 2 * 4]`: each half has strides, and so has what lies in both of them at one place."""
    source = Block(arg_types=[tensor((3, 4, 2), "f32")]).args[0]
    moved = TransposeOp(source, [0, 2, 1])
    joined = ReshapeOp(moved.result, (3, 8))
    assert View.whole((3, 2, 4)).transposed([0, 2, 1]).reshaped((3, 8)) is None
    assert strided([moved, joined, SliceOp(joined.result, starts, sizes, steps)]) == expected


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_windows_are_found_again(data: st.DataObject) -> None:
    """Along up to two dims, after a slice or not, transposed or not: `view_ops` gives the same strides."""
    base = data.draw(st.lists(st.integers(1, 7), min_size=2, max_size=4))
    view = View.whole(base)
    if data.draw(st.booleans()):
        cut = [data.draw(st.integers(0, size - 1)) for size in base]
        view = view.sliced(
            cut, [size - start for size, start in zip(base, cut, strict=True)], [1] * len(base)
        )
    count = data.draw(st.integers(1, 2))
    windows = [[data.draw(st.integers(1, 3)) for _ in range(3)] for _ in range(count)]
    spans = [(size - 1) * dilation + 1 for size, _, dilation in windows]
    if any(span > whole for span, whole in zip(spans, view.shape[-count:], strict=True)):
        return
    counts = [
        (whole - span) // stride + 1
        for whole, span, (_, stride, _) in zip(view.shape[-count:], spans, windows, strict=True)
    ]
    sizes, strides, dilations = zip(*windows, strict=True)
    view = view.windows((*view.shape[:-count], *counts, *sizes), strides, dilations)
    view = view.transposed(data.draw(st.permutations(range(len(view.shape)))))
    ops = view_ops(Block(arg_types=[tensor(base, "f32")]).args[0], view)
    reached: View | None = View.whole(base)
    for op in ops:
        reached = None if reached is None else reached.then(op)
    numbers = np.arange(np.prod(base), dtype=np.int64)
    assert reached is not None
    np.testing.assert_array_equal(seen(reached, numbers), seen(view, numbers))
