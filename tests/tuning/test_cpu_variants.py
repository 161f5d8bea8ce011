"""What the products of `cpu` offer to be measured, and whose measurements hold on this machine."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr

from aicf.backends.cpu.families.gemm.kernel import VARIANTS
from aicf.backends.host import processor_name
from aicf.backends.registry import resolve_target
from aicf.compilation.compiler import compile
from aicf.compilation.record import Options
from aicf.errors import PolicyError
from aicf.frontends.text import make_context
from aicf.policies.tuning_table import Header, MeasuredWorkload, Row, Timing, TuningTable
from aicf.tuning.candidates import Candidate, candidates, grouped

from .programs import TWO_PRODUCTS, silent

KERNEL = "cpu.gemm_portable"
TARGET = resolve_target("cpu")
HEADER = Header("cpu", TARGET.arch.data, 1, processor_name(), "", {}, {})


def offered(threads: int = 1) -> list[Candidate]:
    """What one kernel offers for the first of the two products."""
    module = grouped(TWO_PRODUCTS, Options("cpu", "", "", threads), make_context(), silent)
    found = candidates(module, 1000)
    return [each for each in found if each.kernel.id == KERNEL and each.group.id.data == "first"]


def table_for(chosen: Candidate, header: Header = HEADER) -> TuningTable:
    """A table that finds one variant fast."""
    fast = Timing(0.01, 0.0)
    row = Row(KERNEL, chosen.kernel.version, chosen.spec, {}, fast, fast)
    return TuningTable(header).with_works([MeasuredWorkload(chosen.work.digest, chosen.work, (row,))])


def test_products_offer_tiles_sources_and_threads():
    found = [each.record.record.data for each in offered(threads=2)]
    assert len({str(record) for record in found}) == len(found) == 4 * VARIANTS
    assert {record["b_source"] for record in found} == {StringAttr("direct"), StringAttr("workspace")}
    assert len({str(record["tile_rows"]) for record in found}) > 2
    assert {str(record["threads"]) for record in found} == {"1 : i64", "2 : i64"}


@pytest.mark.parametrize("source", ["direct", "workspace"])
def test_what_was_measured_fastest_runs(source: str):
    fitting = [each for each in offered() if each.record.record.data["b_source"] == StringAttr(source)]
    chosen = fitting[-1]
    exe = compile(TWO_PRODUCTS, tuning=table_for(chosen))
    (launch,) = [each for each in exe.plan.programs[0].launches if each.name == "first"]
    assert launch.kernel == KERNEL
    assert chosen.spec and {name: launch.record[name] for name in chosen.spec} == chosen.spec
    rng = np.random.default_rng(7)
    x, a, b = (rng.standard_normal(shape, np.float32) for shape in ((16, 32), (32, 24), (24, 8)))
    np.testing.assert_allclose(exe(x, a, b), x @ a @ b, rtol=1e-4, atol=1e-4)


CONVOLUTION = """
func.func @conv(
    %x : tensor<1x16x12x12xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<48x16x3x3xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<1x48x12x12xf32> {logical.name = "y"}) {
  %y = logical.conv %x, %w {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1}
    : (tensor<1x16x12x12xf32>, tensor<48x16x3x3xf32>) -> tensor<1x48x12x12xf32>
  func.return %y : tensor<1x48x12x12xf32>
}
"""


def test_convolutions_offer_every_tile_of_every_algorithm_and_each_is_right():
    module = grouped(CONVOLUTION, Options("cpu", "", "", 1), make_context(), silent)
    found = [each for each in candidates(module, None) if each.kernel.id == "cpu.conv_portable"]
    specs = [each.spec for each in found]
    direct = {(each["tile_pixels"], each["tile_vectors"]) for each in specs if each["algorithm"] == "direct"}
    assert len({str(spec) for spec in specs}) == len(specs) > 20 and len(direct) > 8
    assert {each["algorithm"] for each in specs} == {"direct", "winograd"}
    assert {each["lanes_along"] for each in specs} == {"pixels", "channels"}
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape, np.float32) for shape in ((1, 16, 12, 12), (48, 16, 3, 3)))
    expected = compile(CONVOLUTION, {"w": w}, "reference")(x)
    for chosen in found[::5]:
        fast = Timing(0.01, 0.0)
        row = Row(chosen.kernel.id, chosen.kernel.version, chosen.spec, {}, fast, fast)
        table = TuningTable(HEADER, (MeasuredWorkload(chosen.work.digest, chosen.work, (row,)),))
        exe = compile(CONVOLUTION, {"w": w}, tuning=table)
        (launch,) = exe.plan.programs[0].launches
        assert {name: launch.record[name] for name in chosen.spec} == chosen.spec
        np.testing.assert_allclose(exe(x), expected, rtol=1e-3, atol=1e-3)


def test_a_table_of_another_machine_is_refused_here_and_holds_for_its_level():
    header = Header("cpu", TARGET.arch.data, 1, "Another Processor 9000", "", {}, {})
    table = table_for(offered()[-1], header)
    with pytest.raises(PolicyError) as error:
        compile(TWO_PRODUCTS, tuning=table)
    message = str(error.value)
    assert f"measured on Another Processor 9000, this machine is {processor_name()}" in message
    assert f"aicf tune MODEL --target cpu:{TARGET.arch.data}" in message
    assert f"name the level, --target cpu:{TARGET.arch.data}" in message
    assert compile(TWO_PRODUCTS, target=f"cpu:{TARGET.arch.data}", tuning=table).plan.programs
