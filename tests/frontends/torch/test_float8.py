"""ATen's casts to and from floats of 8 bits, and products of them, against eager mode."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import aicf
from aicf.runtime.dlpack import host_array
from aicf.support.torch_types import host_view

pytestmark = pytest.mark.peers

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def compiled(module: torch.nn.Module, *inputs: torch.Tensor) -> list[np.ndarray]:
    """The results of an exported module, compiled for the CPU."""
    exe = aicf.compile(torch.export.export(module, inputs), target="cpu")
    found = exe(*map(host_view, inputs))
    return [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_tensors_are_read_where_they_lie(dtype: torch.dtype) -> None:
    """Through DLPack, of which NumPy reads no such type."""
    tensor = torch.randn(5, 7, generator=generator(6)).to(dtype).t()
    array = host_array(tensor)
    assert array.ctypes.data == tensor.data_ptr() and not array.flags.c_contiguous
    np.testing.assert_array_equal(array.astype(np.float64), tensor.double().numpy())


class Casts(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor, stored: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = tuple(stored.to(each) for each in (torch.float32, torch.float16, torch.bfloat16))
        return (
            x.to(self.dtype),
            x.half().to(self.dtype),
            x[:253].abs().clamp(max=300).int().to(self.dtype),
            *wide,
        )


@pytest.mark.parametrize("dtype", FLOAT8)
def test_casts(dtype: torch.dtype) -> None:
    """Too large numbers, infinity and NaN among them; every number of the type is widened."""
    largest = torch.finfo(dtype).max
    x = torch.randn(253, generator=generator(1)) * largest
    x = torch.cat([x, torch.tensor([float("inf"), -float("inf"), float("nan")])])
    module, stored = Casts(dtype), torch.arange(256, dtype=torch.uint8).view(dtype)
    for found, wanted in zip(compiled(module, x, stored), module(x, stored), strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found.astype(np.float64), wanted.double().numpy())


class Scaled(torch.nn.Module):
    def __init__(self, out: torch.dtype, bias: bool) -> None:
        super().__init__()
        self.out = out
        self.bias = torch.randn(32, generator=generator(2)).to(torch.bfloat16) if bias else None

    def forward(self, a: torch.Tensor, b: torch.Tensor, s: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, b.t(), s, t, bias=self.bias, out_dtype=self.out)


@pytest.mark.parametrize("types", tuple(itertools.product(FLOAT8, repeat=2)))
@pytest.mark.parametrize(
    ("scales", "out", "bias"),
    [
        (((), ()), torch.float32, False),
        (((1,), (1, 1)), torch.bfloat16, True),
        (((48, 1), (1, 32)), torch.bfloat16, False),
    ],
)
def test_scaled_products(
    scales: tuple[tuple[int, ...], ...], out: torch.dtype, bias: bool, types: tuple[torch.dtype, torch.dtype]
) -> None:
    a, b = (torch.randn(n, 64, generator=generator(n)).to(t) for n, t in zip((48, 32), types, strict=True))
    s, t = (torch.rand(shape, generator=generator(5)) + 0.5 for shape in scales)
    module = Scaled(out, bias)
    (found,) = compiled(module, a, b, s, t)
    exact = (a.double() * s.double()) @ (b.double().t() * t.double()) + (
        module.bias.double() if bias else 0.0
    )
    limit = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7}[out]
    np.testing.assert_allclose(found.astype(np.float64), exact.numpy(), rtol=limit, atol=limit)
    if types != (torch.float8_e5m2, torch.float8_e5m2):  # which eager mode does not multiply
        np.testing.assert_allclose(
            found.astype(np.float64), module(a, b, s, t).double().numpy(), rtol=2 * limit, atol=2 * limit
        )
