"""Suppression of boxes on every level that runs here: to the bit as the meaning has it, and by a table of overlaps.

The sizes reach from less than a node of the tree of scores to three levels of it, on both sides of each edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import aicf
from aicf.backends.common.loop_nest import Strided
from aicf.backends.cpu.families.nms.schedule import (
    FAN_OUT,
    SuppressionSpec,
    suppression_record,
    suppression_spec,
)
from aicf.backends.cpu.families.nms.template import Suppression, SuppressionPointers
from aicf.backends.cpu.families.records import integer
from aicf.backends.cpu.target import LEVELS, CpuLevel
from aicf.errors import PlanError
from aicf.semantics import kept_boxes
from tests.backends.cpu.harness import NUMPY, Function, Poisoned, runnable_levels
from tests.support.op_rows.detection import OVERLAPS, boxes_on_a_grid, scores_with_ties, suppressed

Array = NDArray[Any]

COUNTS = (1, 2, 31, 32, 33, 64, 65, 100, 1023, 1024, 1025, 1057)
"""Boxes: less than a node of the tree and more, one level and two, and a rest of the last node or none."""


@dataclass(frozen=True)
class Case:
    """A suppression, its operands as they lie in memory, and what is asked of it."""

    boxes: Array
    scores: Array
    overlap: float
    floor: float | None
    limit: int
    centred: bool

    @property
    def dtype(self) -> str:
        """Of boxes and scores."""
        return "f32" if self.boxes.dtype == np.float32 else "f64"

    @property
    def kept(self) -> int:
        """Places of the result for each class."""
        return min(self.limit, self.boxes.shape[1])

    def meant(self) -> Array:
        """As `logical.non_max_suppression` means it, in the type of the boxes."""
        overlap, floor = (None if n is None else self.boxes.dtype.type(n) for n in (self.overlap, self.floor))
        assert overlap is not None
        with np.errstate(invalid="ignore", over="ignore"):
            return kept_boxes(
                self.boxes,
                self.scores,
                np.asarray(overlap),
                None if floor is None else np.asarray(floor),
                limit=self.kept,
                centred=self.centred,
            )

    def run(self, level: CpuLevel, threads: int = 1) -> Array:
        """By the kernel's own code; nothing outside result and workspace is written."""
        function, spec = self.compiled(level), self.spec(level)
        result = Poisoned((*self.scores.shape[:2], self.kept), "i64")
        workspace = Poisoned((threads * spec.share_bytes,), "i8")
        numbers = [np.array([n], self.boxes.dtype) for n in (self.overlap, self.floor or 0.0)]
        for tid in range(threads):
            operands = (self.boxes, self.scores, *numbers, result.array, workspace.array)
            function(*operands, tid=tid, nthreads=threads)
        result.check()
        workspace.check()
        return result.array

    def spec(self, level: CpuLevel) -> SuppressionSpec:
        """As the kernel's descriptor has it."""
        return SuppressionSpec(self.boxes.shape[1], self.kept, self.dtype, FAN_OUT, level.lanes(self.dtype))

    def compiled(self, level: CpuLevel) -> Function:
        """For a machine that runs the level."""
        return Function(level, 6, self.emit(level))

    def emit(self, level: CpuLevel) -> Any:
        """What emits the code."""
        boxes, scores = (_strided(array, self.dtype) for array in (self.boxes, self.scores))
        shape = (*self.scores.shape[:2], self.kept)
        result = Strided(shape, (shape[1] * shape[2], shape[2], 1), "i64")
        suppression = Suppression(boxes, scores, result, self.centred, self.spec(level))

        def emit(em: Any, *values: Any) -> None:
            boxes, scores, overlap, floor, kept, workspace, tid, nthreads = values
            least = None if self.floor is None else floor
            pointers = SuppressionPointers(boxes, scores, overlap, least, kept, workspace)
            suppression.emit(em, pointers, tid, nthreads)

        return emit


def _strided(array: Array, dtype: str) -> Strided:
    strides = tuple(step // array.itemsize for step in array.strides)
    return Strided(array.shape, strides, dtype)


def random_case(random: np.random.Generator, count: int, dtype: str, *, on_a_grid: bool) -> Case:
    """Boxes that overlap much or little, scores with ties or without; both may be turned in memory."""
    samples, classes = (int(random.integers(1, most)) for most in ((3, 4) if count <= 100 else (2, 3)))
    centred, made = bool(random.integers(2)), NUMPY[dtype]
    shape = (samples, classes, count)
    scores = scores_with_ties(random, shape) if random.integers(2) else random.standard_normal(shape)
    if on_a_grid:
        boxes, overlap = boxes_on_a_grid(random, (samples, count), centred=centred), random.choice(OVERLAPS)
    else:
        boxes = random.standard_normal((samples, count, 4)) * float(random.choice([1.0, 30.0]))
        unusual = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30]
        where = random.random(boxes.shape) < 0.02
        boxes[where] = random.choice(unusual, boxes.shape)[where]
        overlap = float(random.random()) ** 2
    floor = random.choice([-1.0, 0.0, 0.5, np.nan, -np.inf]) if random.integers(3) == 0 else None
    # Of few boxes as many as there are and more; the meaning compares those that are kept one by one.
    limit = int(random.choice([1, 5, 17, count, count + 3] if count <= 100 else [1, 5, 17]))
    boxes, scores = boxes.astype(made), scores.astype(made)
    if random.integers(2):
        boxes = np.asfortranarray(boxes)
    if random.integers(2):
        scores = np.ascontiguousarray(scores.transpose(0, 2, 1)).transpose(0, 2, 1)
    return Case(boxes, scores, float(overlap), None if floor is None else float(floor), limit, centred)


@pytest.mark.parametrize("level", runnable_levels(), ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@settings(max_examples=15, deadline=None)
@given(count=st.sampled_from(COUNTS), seed=st.integers(0, 2**32), threads=st.integers(1, 3))
def test_boxes_are_kept_as_the_meaning_has_it(
    count: int, seed: int, threads: int, dtype: str, level: CpuLevel
) -> None:
    """Boxes anywhere, some with a NaN or an infinity: an overlap that differs in its last bit would show."""
    case = random_case(np.random.default_rng(seed), count, dtype, on_a_grid=False)
    np.testing.assert_array_equal(case.run(level, threads), case.meant())


@pytest.mark.parametrize("level", runnable_levels(), ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@settings(max_examples=15, deadline=None)
@given(count=st.sampled_from(COUNTS[:8]), seed=st.integers(0, 2**32))
def test_boxes_on_a_grid_are_kept_as_a_table_of_overlaps_has_it(
    count: int, seed: int, dtype: str, level: CpuLevel
) -> None:
    """Many boxes are the same, and many overlaps are exactly what is allowed."""
    case = random_case(np.random.default_rng(seed), count, dtype, on_a_grid=True)
    floor = None if case.floor is None else np.asarray(case.floor)
    wanted = suppressed(
        case.boxes, case.scores, np.asarray(case.overlap), floor, limit=case.limit, centred=case.centred
    )
    np.testing.assert_array_equal(case.run(level), wanted)


@pytest.mark.parametrize("level", runnable_levels(), ids=lambda level: level.name)
def test_boxes_without_an_overlap_are_sorted(level: CpuLevel) -> None:
    """All are kept: by falling scores, zeros of either sign and infinities among them, and rising places."""
    random = np.random.default_rng(5)
    for count in (*COUNTS, 33 * 1024):
        scores = np.round(random.standard_normal((1, 1, count)) * 50).astype(np.float32)
        scores[random.random(scores.shape) < 0.05] = -0.0
        scores[random.random(scores.shape) < 0.05] = -np.inf
        corners = np.arange(count, dtype=np.float32)
        boxes = np.stack([corners, corners, corners + 1, corners + 1], -1)[None]
        case = Case(boxes, scores, 0.0, None, count, False)
        np.testing.assert_array_equal(case.run(level)[0, 0], np.argsort(-scores[0, 0], kind="stable"))


@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_code_for_every_level(dtype: str, level: CpuLevel) -> None:
    """Those too that this machine does not run; the same bytes each time."""
    case = random_case(np.random.default_rng(1), 1025, dtype, on_a_grid=False)
    code = Function.compile_only(level, 6, case.emit(level))
    assert len(code) > 1000
    assert Function.compile_only(level, 6, case.emit(level)) == code


def test_levels_of_the_tree() -> None:
    """A key for each run of 32 scores, then for each node, up to one node."""
    assert SuppressionSpec(1, 1, "f32", 32, 16).levels == ((0, 1),)
    assert SuppressionSpec(1024, 1, "f32", 32, 16).levels == ((0, 1),)
    assert SuppressionSpec(1025, 1, "f32", 32, 16).levels == ((0, 2), (64, 1))
    assert SuppressionSpec(32769, 1, "f32", 32, 16).levels == ((0, 33), (1056, 2), (1120, 1))


@pytest.mark.parametrize(("classes", "count", "threads"), [(1, 1500, 1), (2, 3, 1), (6, 500, 2)])
def test_threads_of_a_program(classes: int, count: int, threads: int) -> None:
    """One class is one thread's, and so are few boxes; the workspace has a share for each thread."""
    random = np.random.default_rng(classes)
    boxes = random.random((1, count, 4)).astype(np.float32)
    scores = random.random((1, classes, count)).astype(np.float32)
    graph = aicf.Graph("f")
    b, s = graph.input("b", boxes.shape), graph.input("s", scores.shape)
    graph.output(graph.non_max_suppression(b, s, graph.constant(0.25, (), "f32"), limit=40), "y")
    exe = aicf.compile(graph.module(), target="cpu:x86-64-v3", threads=2)
    bytes_ = threads * SuppressionSpec(count, min(40, count), "f32", FAN_OUT, 8).share_bytes
    record = (
        f"threads = {threads} : i64, fan_out = 32 : i64, lanes = 8 : i64, workspace_bytes = {bytes_} : i64"
    )
    assert record in exe.ir("emit")
    wanted = suppressed(boxes, scores, np.asarray(0.25), limit=40, centred=False)
    np.testing.assert_array_equal(exe({"b": boxes, "s": scores}), wanted)


@pytest.mark.parametrize(("entry", "value"), [("fan_out", 48), ("lanes", 32), ("lanes", 0)])
def test_a_record_that_no_vector_has(entry: str, value: int) -> None:
    record = suppression_record(SuppressionSpec(100, 7, "f32", 32, 8), 2)
    assert suppression_spec(record, 100, 7, "f32") == SuppressionSpec(100, 7, "f32", 32, 8)
    with pytest.raises(PlanError, match=f"its '{entry}' is {value}, legal: 2, 4, 8, 16"):
        suppression_spec({**record, entry: integer(value)}, 100, 7, "f32")
