"""Fourier transforms, windows and mel filters of ONNX against NumPy and package onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.errors import InvalidIR
from tests.support.onnx_models import expect, expect_known, one_node

Array = NDArray[Any]


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def parts(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1).astype(np.float32)


def numbers(x: Array) -> Array:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


@pytest.mark.parametrize("kind", [1, 2])
@pytest.mark.parametrize("length", [None, 5, 12, 40])
def test_transforms(kind: int, length: int | None) -> None:
    """Along an axis in the middle; cut off and filled up with zeros, with waves as constants and computed."""
    x = floats(0, 2, 9, 3, kind)
    given = [x, None if length is None else np.array(length), np.array(1)]
    known = [number for number, operand in enumerate(given) if number and operand is not None]
    wanted = parts(np.fft.fft(numbers(x), length, axis=1))
    expect("DFT", given, known=known, expected=[wanted], atol=2e-5)
    expect("DFT", given[:2], known=known[:-1], opset=17, axis=1, expected=[wanted], atol=2e-5)
    back = parts(np.fft.ifft(numbers(x), length, axis=1))
    expect("DFT", given, known=known, inverse=1, expected=[back], atol=2e-5)


@pytest.mark.parametrize("length", [9, 10, 50])
def test_transforms_of_real_signals(length: int) -> None:
    x = floats(1, 2, length, 1)
    spectrum = np.fft.rfft(x[..., 0])
    expect("DFT", [x, None, np.array(1)], known=[2], onesided=1, expected=[parts(spectrum)], atol=5e-5)
    given = [parts(spectrum), np.array(length), np.array(-2)]
    expect("DFT", given, known=[1, 2], onesided=1, inverse=1, expected=[x], atol=2e-5)


@pytest.mark.parametrize("onesided", [0, 1])
def test_frames(onesided: int) -> None:
    x, window = floats(2, 2, 50, 1), floats(3, 16)
    frames = np.stack([x[:, at : at + 16, 0] * window for at in range(0, 35, 7)], 1)
    wanted = parts((np.fft.rfft if onesided else np.fft.fft)(frames))
    given = [x, np.array(7), window, np.array(16)]
    expect("STFT", given, known=[1, 3], onesided=onesided, expected=[wanted], atol=2e-5)
    baseline = np.stack([x[:, at : at + 16, 0] for at in range(0, 35, 7)], 1)
    wanted = parts((np.fft.rfft if onesided else np.fft.fft)(baseline))
    given = [x, np.array(7), None, np.array(16)]
    expect("STFT", given, known=[1, 3], onesided=onesided, expected=[wanted], atol=2e-5)


def test_frames_of_complex_signals() -> None:
    x = floats(4, 1, 30, 2)
    frames = np.stack([numbers(x)[:, at : at + 12] for at in range(0, 19, 6)], 1)
    given = [x, np.array(6), None, np.array(12)]
    expect("STFT", given, known=[1, 3], onesided=0, expected=[parts(np.fft.fft(frames))], atol=2e-5)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op: str, periodic: int) -> None:
    expect_known(op, [np.array(11)], periodic=periodic, atol=1e-6)
    expect_known(op, [np.array(8)], periodic=periodic, output_datatype=11, atol=1e-12)


def test_mel_weights() -> None:
    given = [
        np.array(8),
        np.array(128),
        np.array(8192),
        np.array(50.0, np.float32),
        np.array(4000.0, np.float32),
    ]
    expect_known("MelWeightMatrix", given)


def test_the_axis_of_parts_is_refused() -> None:
    model = one_node("DFT", [floats(0, 2, 3, 2), None, np.array(2)], known=[2])
    with pytest.raises(InvalidIR, match="axis 2 is that of real and imaginary parts"):
        aicf.compile(model, target="cpu")
