"""PyTorch's functions by the names of the rows of ops that are not elementwise, and what results must agree in."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import op_rows, torch_losses
from tests.support.op_rows.pooling import starts_of
from tests.support.op_rows.row import FLOATS, INTEGERS, Array, Use, assert_close, is_float
from tests.support.torch_tensors import tensor

torch = pytest.importorskip("torch")
functional = torch.nn.functional

OWN = ("random_numbers", "counters", "quantised_blocks")
"""Random numbers are PyTorch's own; counters it has in its schedulers, beside which `test_optimizers_pytorch` is;
blocks of llama.cpp it has none."""
FAMILIES = {family: rows for family, rows in op_rows.FAMILIES.items() if family not in OWN}
ROWS = tuple(row for rows in FAMILIES.values() for row in rows)
TYPES = (*FLOATS, *INTEGERS, "i1")
ELEMENTS = {
    **{"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16},
    **{"i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8},
    "i1": torch.bool,
}

Tensor = Any


def in_order(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that takes the attributes in our order, under names of its own."""
    return lambda *operands, **attributes: function(*operands, *attributes.values())


def reduced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of one dimension at a time, the last first."""

    def apply(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
        for axis in reversed(axes):
            x = function(x, axis, keepdims)
        return x

    return apply


def product(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    """Theirs takes one dimension at a time: between them 16 bits would be rounded."""
    wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return reduced(functools.partial(torch.prod, dtype=wide))(x, axes, keepdims).to(x.dtype)


def largest(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that takes no truth values, which order as bytes do."""
    return lambda x, axis, keepdims: function(x.byte() if x.dtype == torch.bool else x, axis, keepdims)


def log_sum_exp(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    return torch.logsumexp(x, axes, keepdims)


def running_sum(x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    x = x.flip(axis) if reverse else x
    if exclusive:
        first = torch.zeros_like(x.narrow(axis, 0, 1))
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    total = torch.cumsum(x, axis, dtype=x.dtype)
    return total.flip(axis) if reverse else total


def layer_norm(x: Tensor, scale: Tensor, bias: Tensor, axis: int, epsilon: float) -> Tensor:
    return functional.layer_norm(x, x.shape[axis:], scale, bias, epsilon)


def rms_norm(x: Tensor, scale: Tensor, axis: int, epsilon: float) -> Tensor:
    return functional.rms_norm(x, x.shape[axis:], scale, epsilon)


def batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float
) -> Tensor:
    return functional.batch_norm(x, mean, variance, scale, bias, eps=epsilon)


def group_norm(x: Tensor, scale: Tensor, bias: Tensor, groups: int, epsilon: float) -> Tensor:
    return torch.group_norm(x, groups, scale, bias, epsilon)


def matmul(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool) -> Tensor:
    return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


def widening_matmul(a: Tensor, b: Tensor, *, widening: bool, **flags: bool) -> Tensor:
    assert widening
    return matmul(a.int(), b.int(), **flags)


def linear(x: Tensor, weight: Tensor, *bias: Tensor) -> Tensor:
    """Of integers their function knows no bias."""
    product = torch.matmul(x, weight.T)
    return product + bias[0] if bias else product


def in_float64(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that theirs has of floats alone: small integers are exact in float64, and wrap around after."""

    def apply(*operands: Tensor, **attributes: Any) -> Tensor:
        dtype = operands[0].dtype
        if dtype.is_floating_point:
            return function(*operands, **attributes)
        return function(*(operand.double() for operand in operands), **attributes).long().to(dtype)

    return apply


def widening_conv(*operands: Tensor, widening: bool, **attributes: Any) -> Tensor:
    assert widening
    return in_float64(conv)(*(operand.int() for operand in operands), **attributes)


CONVOLUTIONS = {
    False: (functional.conv1d, functional.conv2d, functional.conv3d),
    True: (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d),
}


def conv(
    x: Tensor,
    weight: Tensor,
    *bias: Tensor,
    low: Sequence[int],
    high: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    padding_value: float = 0,
) -> Tensor:
    """Theirs pads both sides alike, with zeros."""
    sides = [amount for pair in zip(reversed(low), reversed(high), strict=True) for amount in pair]
    function = CONVOLUTIONS[False][len(low) - 1]
    padded, wide, *rest = map(_widened, (functional.pad(x, sides, value=padding_value), weight, *bias))
    sums = function(padded, wide, *(rest or (None,)), stride=strides, dilation=dilations, groups=groups)
    return sums.to(x.dtype)


def _widened(x: Tensor) -> Tensor:
    """Halves as f32: their convolution of bf16 gives some places of small operands what was in memory before."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    *bias: Tensor,
    low: Sequence[int],
    high: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    extra: Sequence[int],
) -> Tensor:
    """Theirs cuts both sides alike: here all of it, then what is cut off, or more zeros."""
    function = CONVOLUTIONS[True][len(low) - 1]
    total = function(_widened(x), _widened(weight), stride=strides, dilation=dilations, groups=groups)
    lists = zip(reversed(low), reversed(high), reversed(extra), strict=True)
    result = functional.pad(total, [amount for lo, hi, more in lists for amount in (-lo, more - hi)])
    sums = result + _widened(bias[0]).reshape(-1, *[1] * len(low)) if bias else result
    return sums.to(x.dtype)


def conv_weight_grad(
    x: Tensor,
    grad: Tensor,
    *,
    sizes: Sequence[int],
    low: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Tensor:
    """Theirs is of a convolution: of the operand with zeros around it, without what no window reaches."""
    lists = zip(grad.shape[2:], sizes, strides, dilations, low, x.shape[2:], strict=True)
    ends = [(o - 1) * s + (k - 1) * d + 1 - lo - size for o, k, s, d, lo, size in lists]
    sides = [amount for pair in zip(reversed(low), reversed(ends), strict=True) for amount in pair]
    if any(
        end + size < 1 for end, size in zip(ends, x.shape[2:], strict=True)
    ):  # no window reaches the operand
        zero = 0 * x.flatten()[0] * grad.flatten()[0]
        return zero.expand(grad.shape[1], x.shape[1] // groups, *sizes)
    padded, wide = _widened(functional.pad(x, sides)), _widened(grad)
    shape = [grad.shape[1], x.shape[1] // groups, *sizes]
    function = (torch.nn.grad.conv1d_weight, torch.nn.grad.conv2d_weight, torch.nn.grad.conv3d_weight)[
        len(sizes) - 1
    ]
    found = function(padded, shape, wide, stride=strides, dilation=dilations, groups=groups)
    return found.to(x.dtype)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *more: Tensor,
    causal: bool,
    past: int,
    scale: float | None,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """Masks and causality as one mask that is added; their own answer for a query that sees no key is 0, not NaN.
    Attention with capped scores is written out."""
    scores = torch.zeros((*q.shape[:-1], k.shape[-2]), dtype=q.dtype)
    mask = [one for one in more if one.dtype not in (torch.int32, torch.int64)]
    for one in mask:
        scores = torch.where(one, scores, -torch.inf) if one.dtype == torch.bool else scores + one
    if causal:
        before = more[-1] if len(more) > len(mask) else torch.tensor(past)
        before = before.reshape(*before.shape, 1, 1, 1) if before.ndim else before
        distance = torch.arange(q.shape[-2])[:, None] + before - torch.arange(k.shape[-2])
        seen = (distance >= 0) & (distance < (window or 1 << 30))
        scores = torch.where(seen, scores, -torch.inf)
    if softcap is not None:
        shared = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(shared, -3), v.repeat_interleave(shared, -3)
        product = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        return torch.softmax(softcap * torch.tanh(product / softcap) + scores, -1) @ v
    answer = functional.scaled_dot_product_attention(q, k, v, scores, scale=scale, enable_gqa=True)
    return torch.where(torch.isinf(scores).all(-1, keepdim=True), torch.nan, answer)


def broadcast(x: Tensor, dimensions: Sequence[int], sizes: Sequence[int]) -> Tensor:
    aligned = [1] * len(sizes)
    for axis, size in zip(dimensions, x.shape, strict=True):
        aligned[axis] = size
    return x.reshape(aligned).expand(*sizes)


def strided(x: Tensor, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> Tensor:
    windows = zip(starts, sizes, strides, strict=True)
    return x[tuple(slice(start, start + size * stride, stride) for start, size, stride in windows)]


def windows(x: Tensor, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Tensor:
    """Their `unfold` takes one dimension at a time, and neighbours alone."""
    first = x.ndim - len(sizes)
    for axis, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True), first):
        x = x.unfold(axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
    return x


def constant(value: Array, type_: Any) -> Tensor:
    return tensor(value).expand(type_.get_shape())


def iota(axis: int, sizes: Sequence[int], element: str) -> Tensor:
    shape = [-1 if dim == axis else 1 for dim in range(len(sizes))]
    return torch.arange(sizes[axis], dtype=ELEMENTS[element]).reshape(shape).expand(*sizes)


def pad(x: Tensor, value: Tensor, low: Sequence[int], high: Sequence[int]) -> Tensor:
    """Theirs takes the last dimension first, and the value as a number."""
    result = torch.empty([sum(sides) for sides in zip(low, x.shape, high, strict=True)], dtype=x.dtype)
    result[...] = value
    result[tuple(slice(start, start + size) for start, size in zip(low, x.shape, strict=True))] = x
    return result


def from_the_end(indices: Tensor, size: int) -> Tensor:
    return torch.where(indices < 0, indices + size, indices).long()


def gather(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    inside = from_the_end(indices, x.shape[axis]).clamp(0, x.shape[axis] - 1)
    taken = x.index_select(axis, inside.reshape(-1))
    return taken.reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def gather_elements(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    return torch.gather(x, axis, from_the_end(indices, x.shape[axis]).clamp(0, x.shape[axis] - 1))


def one_hot(indices: Tensor, on: Tensor, off: Tensor, axis: int, depth: int) -> Tensor:
    """Theirs takes no index out of range: those become a class more, which is cut off."""
    inside = from_the_end(indices, depth)
    classes = torch.where((inside < 0) | (inside >= depth), depth, inside)
    return torch.where(functional.one_hot(classes, depth + 1)[..., :depth].bool(), on, off).movedim(-1, axis)


MODES = {"add": "sum", "max": "amax", "min": "amin", "mul": "prod"}


def scattered(x: Tensor, indices: Tensor, updates: Tensor, axis: int, mode: str) -> Tensor:
    """Their function with what is out of range sent to a place more, and of several to be set only the last kept."""
    inside, size = from_the_end(indices, x.shape[axis]), x.shape[axis]
    target = torch.where((inside < 0) | (inside >= size), size, inside)
    longer = torch.cat([x, torch.zeros_like(x.narrow(axis, 0, 1))], axis)
    if mode != "set":
        done = longer.scatter_reduce(axis, target, updates, MODES[mode], include_self=True)
    else:
        done = longer
        for line in range(target.shape[axis]):
            done = done.scatter(axis, target.narrow(axis, line, 1), updates.narrow(axis, line, 1))
    return done.narrow(axis, 0, size)


def scatter(x: Tensor, indices: Tensor, updates: Tensor, mode: str) -> Tensor:
    rows = indices.reshape(-1, *[1] * (x.ndim - 1)).expand(updates.shape)
    return scattered(x, rows, updates, 0, mode)


def write_row(row: Tensor, index: Tensor, x: Tensor, axis: int) -> Tensor:
    if index.ndim:
        return torch.stack([write_row(*each, axis - 1) for each in zip(row, index, x, strict=True)])
    own = int(from_the_end(index, x.shape[axis]))
    return x.index_copy(axis, torch.tensor([own]), row) if 0 <= own < x.shape[axis] else x


def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, mode: str) -> Tensor:
    """As a scatter of rows, the dimensions that a place names made one."""
    depth = indices.shape[-1]
    row, inside = torch.zeros(indices.shape[:-1], dtype=torch.int64), torch.tensor(True)
    for dim in range(depth):
        coordinate = from_the_end(indices[..., dim], x.shape[dim])
        inside = inside & (coordinate >= 0) & (coordinate < x.shape[dim])
        row = row * x.shape[dim] + coordinate
    inner = x.shape[depth:]
    rows = x.reshape(-1, *inner)
    found = scatter(rows, torch.where(inside, row, len(rows)).reshape(-1), updates.reshape(-1, *inner), mode)
    return found.reshape(x.shape)


def last_update(indices: Tensor, rows: int) -> Tensor:
    empty = torch.full((rows,), -1, dtype=torch.int32)
    return scattered(empty, indices, torch.arange(len(indices), dtype=torch.int32), 0, "max")


def topk_indices(x: Tensor, axis: int, k: int, smallest: bool) -> Tensor:
    """Their topk leaves the order of equal elements open, their stable sort does not."""
    return torch.sort(x, dim=axis, descending=not smallest, stable=True).indices.narrow(axis, 0, k)


class Pooling:
    """What PyTorch's poolings take: the operand inside of a border, of the size that all windows cover."""

    def __init__(
        self,
        x: Tensor,
        beyond: float,
        sizes: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
        low: Sequence[int],
        high: Sequence[int],
        ceil_mode: bool,
    ) -> None:
        along = list(zip(x.shape[2:], sizes, strides, dilations, low, high, strict=True))
        self.starts = [starts_of(*one, ceil_mode) for one in along]
        covered = [
            before + start[-1] + (size - 1) * dilation + 1
            for start, (_, size, _, dilation, before, _) in zip(self.starts, along, strict=True)
        ]
        shape = [max(one[4] + one[0], cover) for one, cover in zip(along, covered, strict=True)]
        self.x = torch.full([*x.shape[:2], *shape], beyond, dtype=x.dtype)
        self.x[(..., *(slice(one[4], one[4] + one[0]) for one in along))] = x
        self.x = self.x[(..., *map(slice, covered))]
        self.arguments = (list(sizes), list(strides), 0, list(dilations))
        self.windows = windows(self.x, sizes, strides, dilations).flatten(x.ndim)

    def largest(self, **more: Any) -> Any:
        pools = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
        return pools[self.x.ndim - 3](self.x, *self.arguments, **more)


def max_pool(x: Tensor, **attributes: Any) -> Tensor:
    """Theirs takes floats alone; of integers the largest elements of their windows."""
    if x.is_floating_point():
        return Pooling(x, -torch.inf, **attributes).largest()
    return Pooling(x, torch.iinfo(x.dtype).min, **attributes).windows.amax(-1)


def max_pool_indices(x: Tensor, **attributes: Any) -> Tensor:
    """Theirs counts places with the border."""
    pooling = Pooling(x.double(), -torch.inf, **attributes)
    _, found = pooling.largest(return_indices=True)
    spatial, whole = pooling.x.shape[2:], x.shape[2:]
    total, inside = torch.zeros_like(found), torch.ones_like(found, dtype=torch.bool)
    for axis, (low, size) in enumerate(zip(attributes["low"], whole, strict=True)):
        position = found // math.prod(spatial[axis + 1 :]) % spatial[axis] - low
        inside &= (position >= 0) & (position < size)
        total = total * size + position
    return torch.where(inside, total, math.prod(whole))


def max_pool_taps(x: Tensor, **attributes: Any) -> Tensor:
    """Their index, counted with the border, as the number of an element of the window."""
    pooling = Pooling(x.double(), -torch.inf, **attributes)
    _, found = pooling.largest(return_indices=True)
    spatial, number = pooling.x.shape[2:], torch.zeros_like(found)
    inside = torch.ones_like(found, dtype=torch.bool)
    lists = (attributes[name] for name in ("sizes", "dilations", "low"))
    for axis, (size, dilation, low) in enumerate(zip(*lists, strict=True)):
        position = found // math.prod(spatial[axis + 1 :]) % spatial[axis] - low
        inside &= (position >= 0) & (position < x.shape[2 + axis])
        starts = torch.tensor(pooling.starts[axis]).reshape(-1, *[1] * (x.ndim - 3 - axis))
        number = number * size + (position - starts) // dilation
    return torch.where(inside, number, math.prod(attributes["sizes"])).to(torch.int8)


def max_pool_grad(
    taps: Tensor,
    grad: Tensor,
    whole: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    low: Sequence[int],
) -> Tensor:
    """Added at indices, in the operand inside of a border; one more element is for windows that find nothing."""
    index, rest, count = torch.zeros_like(taps, dtype=torch.int64), taps.long(), math.prod(sizes)
    lists = list(zip(grad.shape[2:], whole, sizes, strides, dilations, low, strict=True))
    shape = [max(lo + size, (n - 1) * step + k * apart) for n, size, k, step, apart, lo in lists]
    for axis, (windows_along, _, size, stride, dilation, _) in enumerate(lists):
        tap = rest // math.prod(sizes[axis + 1 :]) % size
        starts = torch.arange(windows_along).reshape(-1, *[1] * (grad.ndim - 3 - axis)) * stride
        index = index * shape[axis] + starts + tap * dilation
    index = torch.where(rest < count, index, math.prod(shape)).flatten(2)
    total = torch.zeros([*grad.shape[:2], math.prod(shape) + 1], dtype=torch.float64)
    total.scatter_add_(2, index, grad.double().flatten(2))
    total = total[..., :-1].reshape(*grad.shape[:2], *shape)
    inside = (slice(lo, lo + size) for _, size, *_, lo in lists)
    return total[(..., *inside)].to(grad.dtype)


def avg_pool(x: Tensor, count_include_pad: bool, **attributes: Any) -> Tensor:
    """Sums of windows over what they find: theirs knows neither dilation nor another padding after than before."""
    pooling = Pooling(x.float() if x.dtype in (torch.float16, torch.bfloat16) else x, 0.0, **attributes)
    total = pooling.windows.sum(-1)
    for axis, whole in enumerate(x.shape[2:]):
        size, dilation, low, high = (attributes[name][axis] for name in ("sizes", "dilations", "low", "high"))
        ones = torch.arange(-low if count_include_pad else 0, whole + high if count_include_pad else whole)
        steps = torch.tensor(pooling.starts[axis])[:, None] + torch.arange(size) * dilation
        found = torch.isin(steps, ones).sum(-1)
        total = total / found.reshape(-1, *[1] * (x.ndim - 3 - axis))
    return total.to(x.dtype)


def lp_pool(x: Tensor, p: int, **attributes: Any) -> Tensor:
    """Their function takes powers of the numbers, not of their magnitudes."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return torch.linalg.vector_norm(Pooling(wide, 0.0, **attributes).windows, p, -1).to(x.dtype)


def lstm(x: Tensor, weight: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """By their gates: their layer has the input's product inside, which would spread NaN over all gates."""
    h, c = first
    found: dict[int, Tensor] = {}
    for step in reversed(range(len(x))) if reverse else range(len(x)):
        enter, leave, keep, new = functional.linear(h, weight).add(x[step]).chunk(4, -1)
        c = torch.addcmul(keep.sigmoid() * c, enter.sigmoid(), new.tanh())
        h = leave.sigmoid() * c.tanh()
        found[step] = torch.stack([h, c])
    return torch.stack([found[step] for step in range(len(x))], 1)


def non_max_suppression(
    boxes: Tensor, scores: Tensor, overlap: Tensor, *floor: Tensor, limit: int, centred: bool
) -> Tensor:
    """Class by class over sorted scores, with a table of overlaps; they have none of their own."""
    centre, size = boxes.split(2, -1)
    low, high = (
        (centre - size / 2, centre + size / 2) if centred else (centre.minimum(size), centre.maximum(size))
    )
    area = (high - low).prod(-1)
    ends = high[:, :, None].minimum(high[:, None]), low[:, :, None].maximum(low[:, None])
    sides = ends[0] - ends[1]
    shared = sides.prod(-1)
    clash = (shared / (area[:, :, None] + area[:, None] - shared) > overlap) & (sides > 0).all(-1)
    kept = torch.full((*scores.shape[:2], min(limit, scores.shape[2])), -1)
    for sample in range(len(scores)):
        for category, own in enumerate(scores[sample]):
            allowed = own > floor[0] if floor else ~own.isnan()
            found: list[int] = []
            for box in own.argsort(descending=True, stable=True)[
                allowed[own.argsort(descending=True, stable=True)]
            ]:
                if len(found) < kept.shape[2] and not any(clash[sample, box, other] for other in found):
                    found.append(int(box))
            kept[sample, category, : len(found)] = torch.tensor(found, dtype=torch.int64)
    return kept


TORCH: Mapping[str, Callable[..., Tensor]] = {
    "non_max_suppression": non_max_suppression,
    "lstm": lstm,
    "max_pool": max_pool,
    "max_pool_indices": max_pool_indices,
    "max_pool_taps": max_pool_taps,
    "max_pool_grad": max_pool_grad,
    "avg_pool": avg_pool,
    "lp_pool": lp_pool,
    "reduce_sum": lambda x, axes, keepdims: torch.sum(x, axes, keepdims, dtype=x.dtype),
    "reduce_mean": in_order(torch.mean),
    "reduce_max": in_order(torch.amax),
    "reduce_min": in_order(torch.amin),
    "reduce_prod": product,
    "reduce_l2": lambda x, axes, keepdims: torch.linalg.vector_norm(x, 2, axes, keepdims),
    "reduce_logsumexp": log_sum_exp,
    "reduce_any": reduced(torch.any),
    "reduce_all": reduced(torch.all),
    "argmax": largest(torch.argmax),
    "argmin": largest(torch.argmin),
    "cumsum": running_sum,
    "softmax": in_order(functional.softmax),
    "softmax_or_zero": lambda x, axis, empty_as_zero: torch.ops.aten._safe_softmax(x, axis),
    "log_softmax": in_order(functional.log_softmax),
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "matmul": matmul,
    "widening matmul": widening_matmul,
    "linear": linear,
    "conv": in_float64(conv),
    "widening conv": widening_conv,
    "conv_transpose": in_float64(conv_transpose),
    "conv_weight_grad": in_float64(conv_weight_grad),
    "attention": attention,
    "reshape": in_order(torch.reshape),
    "transpose": in_order(torch.permute),
    "detach": torch.Tensor.detach,
    "broadcast": broadcast,
    "slice": strided,
    "window": windows,
    "concat": lambda *parts, axis: torch.cat(parts, axis),
    "select": torch.where,
    "constant": constant,
    "bitcast": lambda x, element: x.view(ELEMENTS[element]),
    "cast": lambda x, element: x.to(ELEMENTS[element]),
    "iota": iota,
    "pad": pad,
    "gather": gather,
    "gather_elements": gather_elements,
    "flip": in_order(torch.flip),
    "tile": in_order(torch.tile),
    "one_hot": one_hot,
    "scatter": scatter,
    "scatter_combine": scatter,
    "last_update": last_update,
    "write_row": write_row,
    "scatter_elements": scattered,
    "scatter_nd": scatter_nd,
    "topk_indices": topk_indices,
    **torch_losses.TORCH,
}


def in_range(array: Array) -> Array:
    return np.abs(np.where(np.isfinite(array), array, 7)).astype(array.dtype) if is_float(array) else array


def finite(array: Array) -> Array:
    return np.where(np.isinf(array), 7, array).astype(array.dtype)


DEFINED: Mapping[tuple[str, str], Callable[[Array], Array]] = {
    **{("cast", dtype): in_range for dtype in FLOATS},
    **{(op, dtype): in_range for op in ("max_pool_indices", "max_pool_taps") for dtype in FLOATS},
    ("matmul", "bf16"): finite,
    ("linear", "bf16"): finite,
}
"""Operands on which PyTorch's function is defined, by row and element type.

A cast of what no integer holds is left open there; of several NaN their pooling finds the last. oneDNN's products of
bf16 fill an odd inner dimension up with zeros, and infinity times those is NaN.
"""


def defined(use: Use) -> Use:
    """The use with operands on which their function is defined."""
    change = DEFINED.get((use.row.name, use.dtype))
    return use if change is None else replace(use, arrays=tuple(map(change, use.arrays)))


def keeps_digits(use: Use) -> bool:
    """Whether no group of a group norm is one element: theirs takes the mean off last, which then cancels all."""
    if use.row.name != "group_norm":
        return True
    x, groups = use.arrays[0], use.attributes["groups"]
    return math.prod(x.shape[1:]) > groups


def assert_like_theirs(use: Use, found: Array) -> None:
    """Integers and what is only moved are equal; floats are close."""
    answer = TORCH[use.row.name](*map(tensor, use.arrays), **use.attributes)
    theirs = (answer.double() if answer.is_floating_point() else answer).numpy()
    assert found.shape == theirs.shape, use
    if is_float(found) and not use.row.moves:
        assert_close(found, theirs, use.dtype, str(use))
    else:
        with np.errstate(invalid="ignore"):  # of a NaN that signals
            widened = found.astype(theirs.dtype)
        np.testing.assert_array_equal(widened, theirs, err_msg=str(use))
