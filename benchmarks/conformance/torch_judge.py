"""Whether results are those of PyTorch: eager mode in float64, or in the dtype itself.

Eager mode in float64 is what a result should be, eager mode in the dtype what PyTorch's users get. An element is right
if it is within the tolerance of either, or at least as near to the first as the second is. Eager mode runs on the
device of the samples; elements are compared on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_cases import Case, seed
from torch_table import base_name

TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-7}


def eager(case: Case) -> list[Tensor]:
    """What eager mode gives, in the dtype of the case."""
    seed()
    return case(*case.tensors)


def difference(case: Case, found: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    """What is wrong with `found`, in one line; None if nothing is.

    Args:
        case: The call.
        found: What it gave.
        expected: What eager mode gives in the same dtype.
    """
    found, expected = _read(case, found), _read(case, expected)
    if len(found) != len(expected):
        return f"{len(found)} results instead of {len(expected)}"
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        if _form(one) != _form(other):
            return f"result {index}: {_describe(one)} instead of {_describe(other)}"
    base, host = base_name(case.op), case.on_host()
    found = [each.cpu() for each in found]
    if base in OPEN:
        return OPEN[base](host, found)
    wide = [each.cpu() for each in _in_float64(case, expected)]
    expected = [each.cpu() for each in expected]
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        if index == 1 and base in TIED:
            wrong = _of_order(host, one, other)
        else:
            wrong = _of_values(host, one, other, wide[index])
        if wrong is not None:
            return f"result {index}: {wrong}"
    return None


def _read(case: Case, results: Sequence[Tensor]) -> Sequence[Tensor]:
    """Without those of which PyTorch's kernels and its own shape functions disagree, as nothing reads them: what sums
    of bags say about the bags."""
    is_sum = base_name(case.op) == "_embedding_bag" and not case.arguments["mode"]
    return results[:1] if is_sum else results


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _describe(tensor: Tensor) -> str:
    where = "" if tensor.device.type == "cpu" else f" on {tensor.device}"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}{where}"


def _in_float64(case: Case, expected: Sequence[Tensor]) -> Sequence[Tensor]:
    """Eager mode with all floats in float64; where that is refused, or means something else, eager mode as it is."""
    tensors = [tensor.double() if tensor.is_floating_point() else tensor for tensor in case.tensors]
    try:
        wide = case(*tensors)
    except Exception:
        return expected
    same = [one.shape for one in wide] == [one.shape for one in expected]
    return wide if same else expected


def _of_values(case: Case, found: Tensor, expected: Tensor, wide: Tensor) -> str | None:
    if not found.numel():
        return None
    if not expected.is_floating_point():
        right = (found == expected) | (found == wide.to(expected.dtype))
    else:
        right = _is_near(found.double(), expected.double(), wide.double(), _tolerance(case, expected))
    if right.all():
        return None
    at = int((~right).flatten().to(torch.int8).argmax())
    values = [each.flatten()[at].item() for each in (found, wide, expected)]
    count = int((~right).sum())
    return (
        f"{values[0]} instead of {values[1]} ({values[2]} in eager mode), {count} of {found.numel()} elements"
    )


def _tolerance(case: Case, expected: Tensor) -> float:
    """Of the coarsest type that takes part: an f32 result of f16 tensors is as good as those."""
    dtypes = [expected.dtype, *(tensor.dtype for tensor in case.tensors)]
    return max(TOLERANCES.get(dtype, 0.0) for dtype in dtypes)


def _is_near(found: Tensor, expected: Tensor, wide: Tensor, tolerance: float) -> Tensor:
    finite = wide[wide.isfinite()].abs()
    scale = max(float(finite.max()), 1.0) if finite.numel() else 1.0
    relative, absolute = 8 * tolerance, 2 * tolerance * scale
    near = torch.isclose(found, wide, relative, absolute, equal_nan=True)
    near |= torch.isclose(found, expected, relative, absolute, equal_nan=True)
    return near | ((found - wide).abs() <= (expected - wide).abs())


# Ops that leave the order of equal elements open


TIED = frozenset({"sort", "topk"})
"""Ops whose second result says where the elements of the first were."""


def _of_order(case: Case, found: Tensor, expected: Tensor) -> str | None:
    """Other indices are right if they are in range, none twice, and read the same elements."""
    values, axis = case.arguments["self"], case.arguments["dim"]
    if not values.dim() or torch.equal(found, expected):
        return None if torch.equal(found, expected) else "another index"
    if found.min() < 0 or found.max() >= values.shape[axis]:
        return "an index out of range"
    ordered = found.sort(axis).values
    if bool((ordered.diff(dim=axis) == 0).any()):
        return "an index twice"
    one, other = values.gather(axis, found), values.gather(axis, expected)
    same = (one == other) | (one.isnan() & other.isnan()) if one.is_floating_point() else one == other
    return None if bool(same.all()) else "indices of other elements"


# Ops whose values PyTorch leaves open


def _any_values(case: Case, found: Sequence[Tensor]) -> str | None:
    return None


def _moments(mean: float, variance: float) -> Callable[[Case, Sequence[Tensor]], str | None]:
    """Mean and variance as those of a distribution, within six standard errors of as many numbers."""

    def check(case: Case, found: Sequence[Tensor]) -> str | None:
        values = found[0].double().flatten()
        if not values.isfinite().all():
            return "a number that is not finite"
        if values.numel() < 100:
            return None
        error = 6 * (variance / values.numel()) ** 0.5
        if abs(float(values.mean()) - mean) > error:
            return f"mean {float(values.mean())} instead of {mean}"
        if not 0.5 < float(values.var()) / variance < 2:
            return f"variance {float(values.var())} instead of {variance}"
        return None

    return check


def _uniform(case: Case, found: Sequence[Tensor]) -> str | None:
    if bool((found[0] < 0).any()) or bool((found[0] >= 1).any()):
        return "a number outside of [0, 1)"
    return _moments(0.5, 1 / 12)(case, found)


def _permutation(case: Case, found: Sequence[Tensor]) -> str | None:
    numbers = torch.arange(found[0].numel())
    if not torch.equal(found[0].sort().values.long(), numbers):
        return "no permutation"
    return "in order" if numbers.numel() > 20 and torch.equal(found[0].long(), numbers) else None


def _dropped(case: Case, found: Sequence[Tensor]) -> str | None:
    given, share = case.arguments["input"], case.arguments["p"]
    kept = found[1]
    if not case.arguments["train"] or share == 0:
        return (
            None if bool(kept.all()) and torch.equal(found[0], given) else "elements changed without dropout"
        )
    scaled = given.double() / (1 - share) if share < 1 else torch.zeros_like(given).double()
    expected = torch.where(kept, scaled, 0.0)
    wrong = _of_values(case, found[0], expected.to(found[0].dtype), expected)
    if wrong is not None or kept.numel() < 100:
        return wrong
    error = 6 * (share * (1 - share) / kept.numel()) ** 0.5
    away = abs(float(kept.double().mean()) - (1 - share))
    return None if away <= error else f"{float(kept.double().mean())} of the elements kept"


OPEN: Mapping[str, Callable[[Case, Sequence[Tensor]], Any]] = {
    "empty": _any_values,
    "empty_strided": _any_values,
    "native_dropout": _dropped,
    "rand": _uniform,
    "randn": _moments(0.0, 1.0),
    "randperm": _permutation,
    "resize_": _any_values,
}
"""Judged by shape and dtype, and by what the values have to be in all."""
