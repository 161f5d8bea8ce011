"""Convolutions of 8-bit integers compiled for this machine, with and without products of quads, against int64 NumPy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import aicf
from aicf.backends.cpu.families.conv.candidates import ConvQuery, candidates_of
from aicf.backends.cpu.families.conv.checks import check
from aicf.backends.cpu.families.conv.costs import EpilogueCycles
from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.conv.record import conv_record, read_conv_spec
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.gemm.units import QUADS_FEATURE
from aicf.backends.cpu.target import host_level, level_named
from aicf.dialects.json_values import attribute_of
from aicf.errors import PlanError
from aicf.frontends.builder import Graph
from tests.backends.cpu.harness import NUMPY
from tests.backends.cpu.test_conv import LEVELS_HERE, instruction

Array = NDArray[Any]

HAS_QUADS = QUADS_FEATURE in host_level().features
QUADS = f"x86-64-v4+{QUADS_FEATURE}"
LEVELS = [*LEVELS_HERE, *([QUADS] if HAS_QUADS else [])]
"""Those that this machine runs; the last is without quads only where the machine is."""

CHANNELS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17)


@dataclass(frozen=True)
class Case:
    """A convolution of `x` and `w`; operand and result lie channels-last or row-major."""

    x: Array
    w: Array
    attributes: dict[str, Any]
    padding_value: int
    is_last: bool

    def exact(self) -> Array:
        """The sums, in int64."""
        low, high, strides, dilations = (
            self.attributes[key] for key in ("low", "high", "strides", "dilations")
        )
        groups = self.attributes["groups"]
        around = [(0, 0), (0, 0), *zip(low, high, strict=True)]
        padded = np.pad(self.x.astype(np.int64), around, constant_values=self.padding_value)
        taps = self.w.shape[2:]
        spans = [(tap - 1) * apart + 1 for tap, apart in zip(taps, dilations, strict=True)]
        axes = tuple(range(2, padded.ndim))
        windows = sliding_window_view(padded, spans, axes)
        steps = tuple(slice(None, None, step) for step in strides)
        inside = tuple(slice(None, None, apart) for apart in dilations)
        windows = windows[(slice(None), slice(None), *steps, *inside)]
        n, counts = len(windows), windows.shape[2 : padded.ndim]
        apart = windows.reshape(n, groups, -1, *counts, *taps)
        weights = self.w.astype(np.int64).reshape(groups, -1, *self.w.shape[1:])
        letters = "hwd"[: len(taps)], "ijk"[: len(taps)]
        sums = np.einsum(f"ngc{''.join(letters)},gmc{letters[1]}->ngm{letters[0]}", apart, weights)
        return sums.reshape(n, -1, *counts)

    def run(self, level: str, role: str = "param", threads: int = 1) -> tuple[Any, Array]:
        """The compiled program and its sums."""
        rank = self.x.ndim
        last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        dtype = "u8" if self.x.dtype == np.uint8 else "i8"
        graph = Graph("convolution")
        given = self.x.transpose(last) if self.is_last else self.x
        x = graph.input("x", given.shape, dtype)
        w = (graph.param if role == "param" else graph.input)("w", self.w.shape, "i8")
        sums = graph.conv(
            graph.transpose(x, first) if self.is_last else x,
            w,
            **self.attributes,
            widening=True,
            padding_value=self.padding_value,
            name="c",
        )
        graph.output(graph.transpose(sums, last) if self.is_last else sums, "y")
        weights = {"w": self.w} if role == "param" else {}
        feeds = {"x": np.ascontiguousarray(given), **({} if weights else {"w": self.w})}
        exe = aicf.compile(graph.module(), weights=weights, target=f"cpu:{level}", threads=threads)
        found = exe.run(feeds)["y"]
        return exe, found.transpose(first) if self.is_last else found

    def check(self, *args: Any) -> Any:
        """Equal to the exact sums; gives the compiled program."""
        exe, found = self.run(*args)
        np.testing.assert_array_equal(found, self.exact())
        return exe


def case_of(
    rng: np.random.Generator,
    sizes: tuple[int, ...],
    weight: tuple[int, ...],
    dtype: str,
    padding_value: int = 0,
    is_last: bool = True,
    **given: Any,
) -> Case:
    rank = len(sizes) - 2
    attributes = {"low": [0] * rank, "strides": [1] * rank, "dilations": [1] * rank, "groups": 1, **given}
    attributes.setdefault("high", attributes["low"])
    limits = np.iinfo(NUMPY[dtype])
    x = rng.integers(limits.min, limits.max + 1, sizes).astype(NUMPY[dtype])
    w = rng.integers(-128, 128, weight).astype(np.int8)
    return Case(x, w, attributes, padding_value, is_last)


def drawn(seed: int) -> tuple[Case, str, int]:
    """A convolution with its zero point at either end of the range or inside, its weight's role and threads."""
    rng = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    dtype, rank, kind = pick("u8", "i8"), pick(1, 2, 2, 2), pick("dense", "dense", "groups", "depthwise")
    channels, groups = pick(*CHANNELS), 1
    outputs = pick(1, 5, 16, 17, 40, 70)
    if kind == "groups":
        groups, outputs = pick(2, 3), pick(1, 5, 17)
    elif kind == "depthwise":
        groups, channels, outputs = pick(2, 8, 16, 17, 70, 130), 1, pick(1, 1, 2)
    taps = [pick(1, 1, 2, 3, 5) for _ in range(rank)]
    low, high = ([int(rng.integers(0, 4)) for _ in taps] for _ in range(2))
    if pick(True, False):
        low = high = [0] * rank
    dilations, strides = ([pick(1, 1, 2, 3) for _ in taps] for _ in range(2))
    shortest = [(tap - 1) * apart + 1 for tap, apart in zip(taps, dilations, strict=True)]
    sizes = [
        max(span - lo - hi, 1) + int(rng.integers(0, 22))
        for span, lo, hi in zip(shortest, low, high, strict=True)
    ]
    limits = np.iinfo(NUMPY[dtype])
    value = pick(int(limits.min), int(limits.max), int(rng.integers(limits.min, limits.max + 1)))
    case = case_of(
        rng,
        (pick(1, 2, 3), channels * groups, *sizes),
        (outputs * groups, channels, *taps),
        dtype,
        value,
        pick(True, True, False),
        low=low,
        high=high,
        strides=strides,
        dilations=dilations,
        groups=groups,
    )
    return case, pick("param", "param", "input"), pick(1, 2)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(48))
def test_drawn_convolutions_are_exact(seed: int) -> None:
    case, role, threads = drawn(seed)
    level = LEVELS[-1] if seed % 2 else LEVELS[seed // 2 % len(LEVELS)]
    case.check(level, role, threads)


@pytest.mark.parametrize("dtype", ["u8", "i8"])
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.skipif(not HAS_QUADS, reason=f"this machine has no {QUADS_FEATURE}")
def test_quads_of_any_number_of_channels(channels: int, dtype: str) -> None:
    """Padded ones from a copy; others where they lie, if quads are whole."""
    rng = np.random.default_rng(channels)
    end = np.iinfo(NUMPY[dtype]).max
    padded = case_of(rng, (2, channels, 9, 11), (20, channels, 3, 3), dtype, int(end), low=[1, 2])
    line = instruction(padded.check(QUADS))
    assert "unit_channels = 4" in line and "copies = true" in line
    bare = case_of(rng, (1, channels, 9, 30), (33, channels, 1, 1), dtype, strides=[2, 2])
    line = instruction(bare.check(QUADS))
    if channels % 4 == 0:
        assert "unit_channels = 4" in line and "copies = false" in line
    else:
        assert "copies = true" in line


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dtype", "taps"), [("u8", 3), ("i8", 5)])
def test_depthwise_reads_channels_where_they_lie(dtype: str, taps: int, level: str) -> None:
    rng = np.random.default_rng(taps)
    least = int(np.iinfo(NUMPY[dtype]).min)
    for step in (1, 2):
        case = case_of(
            rng,
            (2, 70, 10, 13),
            (70, 1, taps, taps),
            dtype,
            least,
            low=[taps // 2] * 2,
            strides=[step] * 2,
            groups=70,
        )
        line = instruction(case.check(level))
        assert 'algorithm = "depthwise"' in line and "copies = false" in line and "channels" in line


@pytest.mark.skipif(not HAS_QUADS, reason=f"this machine has no {QUADS_FEATURE}")
def test_threads_share_rows_or_panels() -> None:
    """Of few outputs rows, of many panels; images too, where there are several. The sums are the same."""
    rng = np.random.default_rng(1)
    for images, outputs, partition in ((1, 16, "rows"), (3, 16, "rows"), (1, 512, "panels")):
        case = case_of(rng, (images, 128, 56, 56), (outputs, 128, 1, 1), "u8")
        line = instruction(case.check(QUADS, "param", 2))
        assert f'partition = "{partition}"' in line and "threads = 2" in line


@pytest.mark.parametrize("channels", [40, 256])
def test_threads_share_a_depthwise_convolution(channels: int) -> None:
    """Rows where panels of channels would leave one thread with more than the other."""
    case = case_of(
        np.random.default_rng(3),
        (2, channels, 41, 40),
        (channels, 1, 3, 3),
        "u8",
        9,
        low=[1, 1],
        groups=channels,
    )
    for threads in (1, 2):
        line = instruction(case.check(LEVELS[-1], "param", threads))
        assert f"threads = {threads}" in line


def test_a_level_without_the_feature_has_pairs() -> None:
    case = case_of(np.random.default_rng(2), (1, 8, 9, 9), (16, 8, 3, 3), "u8", low=[1, 1])
    line = instruction(case.check(LEVELS_HERE[-2] if len(LEVELS_HERE) > 1 else LEVELS_HERE[0]))
    assert "unit_channels = 2" in line


def _problem(**changed: Any) -> ConvProblem:
    problem = ConvProblem(
        *("i32", 1, 1, 64, 32, (56, 56), (3, 3), (56, 56), (1, 1), (1, 1), (1, 1)),
        x_strides=(64 * 56 * 56, 1, 64 * 56, 64),
        operand_type="u8",
        weight_type="i8",
    )
    return replace(problem, **changed)


def _best(problem: ConvProblem, level: str = QUADS, threads: int = 1) -> ConvSpec:
    query = ConvQuery(problem, level_named(level), threads, True, EpilogueCycles(20.0, 1.0), False)
    return min(candidates_of(query), key=lambda found: found[0])[1]


def test_a_record_is_read_again() -> None:
    pointwise = _problem(taps=(1, 1), low=(0, 0))
    for problem in (_problem(), _problem(operand_type="i8"), pointwise, pointwise.in_one_row()):
        for threads in (1, 2):
            spec = _best(problem, threads=threads)
            assert spec.problem.quads
            assert read_conv_spec(conv_record(spec), problem, level_named(QUADS)) == spec


def test_a_record_needs_what_the_level_has() -> None:
    record = conv_record(_best(_problem()))
    with pytest.raises(PlanError, match="its 'unit_channels' is 4: that needs avx512vnni, without it use 2"):
        read_conv_spec(record, _problem(), level_named("x86-64-v4"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"unit_channels": 3}, "its 'unit_channels' is 3, legal: 2, 4"),
        ({"lanes": 2}, "quads are multiplied in vectors of 4, 8, 16 sums"),
        ({"copies": False}, "zeros around the input are in a copy of it"),
        ({"partition": "pixels"}, "its 'partition' is pixels, legal: panels, rows"),
    ],
)
def test_a_record_that_contradicts_itself(entries: dict[str, object], message: str) -> None:
    record = {**conv_record(_best(_problem())), **{key: attribute_of(each) for key, each in entries.items()}}
    with pytest.raises(PlanError, match=message):
        read_conv_spec(record, _problem(), level_named(QUADS))


def test_what_quads_are_not_of() -> None:
    spec = _best(_problem(taps=(1, 1), low=(0, 0), counts=(28, 28), strides=(2, 2)))
    assert check(spec) is None and not spec.copies
    planes = replace(spec.problem, x_strides=(64 * 56 * 56, 56 * 56, 56, 1))
    assert "quads that are read where they lie" in str(check(replace(spec, problem=planes)))
    unsigned = replace(spec.problem, weight_type="u8")
    assert "whose weight is i8" in str(check(replace(spec, problem=unsigned)))
    grouped = replace(spec, partition="rows", problem=replace(spec.problem, groups=2))
    assert "threads share rows of a direct convolution of one group" in str(check(grouped))
    assert not _best(_problem(), "x86-64-v4").problem.quads
    assert not _best(_problem(weight_type="u8")).problem.quads
