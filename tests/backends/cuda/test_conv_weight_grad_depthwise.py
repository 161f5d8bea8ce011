"""`cuda.weight_grad_depthwise` without a GPU: what is legal and why not, who sums what, what compiled code contains,
and what simulated threads compute."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from math import prod

import pytest
from xdsl.ir import Attribute

from aicf.backends.common.record import RecordError, integer, read_integer
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.families.conv.weight_grad.depthwise import schedule as depthwise_schedule
from aicf.backends.cuda.families.conv.weight_grad.depthwise.kernel import WeightGradDepthwiseKernel
from aicf.backends.cuda.families.conv.weight_grad.depthwise.schedule import (
    DepthwiseTile,
    items,
    most_vector,
    places,
    tile_reason,
)
from aicf.backends.cuda.families.conv.weight_grad.parted_kernel import Parted
from aicf.backends.cuda.families.conv.weight_grad.problem import weight_grad_of_work
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.test_conv_weight_grad import TARGET, assert_summed, pick_any, unspilled, work_of
from tests.gpu.convolutions import Convolution, drawn_depthwise
from tests.gpu.weight_grads import channels_last, depthwise, layer, several_groups

KERNEL = WeightGradDepthwiseKernel()
LAYER = depthwise(32, 144, 56)
ROWS = depthwise(32, 144, 56, last=False)


def test_what_it_refuses_has_a_reason() -> None:
    assert "its groups have 64 input channels" in str(KERNEL.legal(work_of(layer(2, 64, 64, 14)), TARGET))
    work = work_of(LAYER)
    long = replace(work.results[0], shape=(144, 1, 3, 33))
    assert "33 elements in a row, more than 32" in str(KERNEL.legal(replace(work, results=(long,)), TARGET))


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(20))
def test_any_depthwise_gradient_is_legal(seed: int) -> None:
    """On every architecture, whatever its type."""
    made = several_groups(drawn_depthwise(random.Random(3000 + seed), 1 << 24))
    for dtype in ("bf16", "f16", "f32", "f64"):
        work = work_of(made, dtype)
        for arch in ARCHES:
            assert KERNEL.legal(work, TargetAttr("cuda", arch)) is None


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_record_gives_its_decisions_back(dtype: str) -> None:
    work = work_of(LAYER, dtype)
    found = KERNEL.variants(work, TARGET)
    assert found[0] == KERNEL.record(work, TARGET)
    assert all(record.keys() == found[0].keys() for record in found)
    assert len({str(record) for record in found}) == len(found) > 5
    for record in found[:5]:
        assert KERNEL.checked_record(work, record, TARGET) == record
        assert read_integer(record, "workspace_bytes") == 4 * 144 * 9 * read_integer(record, "parts")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vector": integer(2)}, "2 neighbouring channels cannot be loaded at once"),
        ({"rows": integer(5)}, "a window has 3 rows"),
        ({"rows": integer(36)}, "108 sums of a thread are more than 36"),
        ({"lanes": integer(3)}, "its 'lanes' is 3, legal: 1, 2, 4"),
        ({"grid": integer(1)}, "'grid' is 1"),
    ],
)
def test_a_record_that_contradicts_itself(changes: dict[str, Attribute], message: str) -> None:
    work = work_of(ROWS, "f32")
    with pytest.raises(RecordError, match=message):
        KERNEL.checked_record(work, {**KERNEL.record(work, TARGET), **changes}, TARGET)


def test_two_channels_are_loaded_at_once_where_they_lie_side_by_side() -> None:
    def most(made: Convolution, dtype: str) -> int:
        return most_vector(weight_grad_of_work(work_of(made, dtype)))

    assert most(LAYER, "bf16") == 2
    assert most(LAYER, "f32") == most(ROWS, "bf16") == most(depthwise(2, 15, 8), "bf16") == 1
    assert most(replace(LAYER, outputs=288), "bf16") == 1, "two outputs have one channel"


@pytest.mark.parametrize(("taps", "stride", "dilation"), [(3, 1, 1), (5, 2, 1), (4, 1, 3), (3, 2, 2)])
def test_an_element_that_several_windows_have_is_loaded_once(taps: int, stride: int, dilation: int) -> None:
    made = Convolution(1, 8, 8, 8, (30,), (taps,), (stride,), (dilation,), (0,), (0,))
    problem = weight_grad_of_work(work_of(channels_last(made)))
    found = places(problem, DepthwiseTile(2, 4, 128, 4, 1))
    reached = Counter(p * stride + k * dilation for p in range(4) for k in range(taps))
    assert found == tuple(sorted(reached)) and len(set(found)) == len(found)


def test_every_tile_that_is_offered_is_legal_and_covers_the_windows() -> None:
    for made in (LAYER, ROWS, depthwise(2, 24, 9, 11), depthwise(4, 40, 30, 5, 2)):
        problem = weight_grad_of_work(work_of(made))
        found = list(depthwise_schedule.tiles(problem))
        assert found
        for tile in found:
            assert tile_reason(tile, problem) is None
            x, _, z = tile.grid(problem, 1)
            assert x * tile.lanes * tile.vector >= made.outputs and z * tile.rows >= made.taps[0]
            assert items(problem, tile) * tile.pixels >= made.batch * prod(made.counts)


@pytest.mark.parametrize(("made", "dtype", "loads"), [(LAYER, "bf16", 4 + 3 * 6), (ROWS, "f16", 4 + 3 * 6)])
def test_machine_code(made: Convolution, dtype: str, loads: int) -> None:
    """Four pixels load what is passed back, and six elements of each row of their windows."""
    work = work_of(made, dtype)
    tile, parts = KERNEL.schedule(work, TARGET).tile, KERNEL.schedule(work, TARGET).parts
    record = KERNEL.record_of(work, TARGET, Parted(replace(tile, pixels=4), parts))
    (_, product), (_, add) = compiled(emitter(KERNEL.id)(launch_of(work, KERNEL.id, record)))
    found = unspilled(product)
    assert found["LDG"] == loads and found["FFMA"] == 4 * 9 * tile.vector
    unspilled(add)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(16))
def test_any_tile_and_parts_sum_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = several_groups(drawn_depthwise(random.Random(seed), 60_000))
    pick_any(seed, monkeypatch)
    assert_summed(made, KERNEL, ("f16", "bf16", "f32", "f64")[seed % 4], seed)
