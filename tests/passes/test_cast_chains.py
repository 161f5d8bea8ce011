"""Random chains of casts, with values that several ops, views and the caller read: every result against NumPy.

`fuse-casts` makes those of updated parameters one instruction and `sink-casts` copies others into their consumers; no
rounding on the way may get lost, and no result.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import aicf
from aicf.errors import PolicyError
from tests.support.cast_programs import CastProgram

STRICT = {"rounding": "strict"}


def compiled(
    program: CastProgram, text: str, target: str, groups: Iterable[list[str]] = ()
) -> aicf.CompiledModel:
    """The program, which rounds every value to its type."""
    weights = {name: program.arrays[name] for name in program.params}
    return aicf.compile(text, weights, target, policy={**STRICT, "groups": list(groups)})


def check(program: CastProgram, executable: aicf.CompiledModel) -> None:
    """Runs it once and compares results and new parameters."""
    feeds = {name: array for name, array in program.arrays.items() if name not in program.params}
    found = {**executable.run(feeds), **executable.state()}
    for name, wanted in program.wanted.items():
        exact = wanted.astype(np.float64)
        within = program.within[name] * np.abs(exact).max()
        np.testing.assert_allclose(found[name].astype(np.float64), exact, rtol=0, atol=within, err_msg=name)


def fused(executable: aicf.CompiledModel) -> list[str]:
    """The ops that `fuse-casts` made one instruction."""
    made = [d for d in executable.decisions if d.made_by == "fuse-casts" and d.choice != "not fused"]
    return list(dict.fromkeys(name for decision in made for name in decision.subjects))


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("seed", range(12))
def test_no_rounding_gets_lost(seed: int, target: str) -> None:
    program = CastProgram(np.random.default_rng(seed))
    check(program, compiled(program, program.text(4), target))


@pytest.mark.parametrize("name", ["p0", "x0"])
def test_the_way_through_a_narrow_type_stays(name: str) -> None:
    """f32 -> f16 -> f32: neither one instruction of casts nor a copy of the second one in its consumers drops both."""
    program = CastProgram(np.random.default_rng(0))
    text = program.round_trips(name, ("f16", "bf16", "i8"))
    executable = compiled(program, text, "cpu")
    assert (len(fused(executable)) > 3) == (name == "p0")
    check(program, executable)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(12))
def test_groups_of_a_policy_compute_the_same_or_are_refused(seed: int) -> None:
    """Also such as leave out what lies between two of their ops."""
    random = np.random.default_rng(seed)
    program = CastProgram(random)
    text = program.text(4)
    ids = fused(compiled(program, text, "reference"))
    random.shuffle(ids)
    groups = [ids[:3], ids[3:6]]
    try:
        executable = compiled(program, text, "reference", [group for group in groups if len(group) > 1])
    except PolicyError as error:
        assert "form no group together" in str(error)
        return
    check(program, executable)


DETOUR = """
func.func @f(
    %x : tensor<8x16xf16> {logical.name = "x", logical.role = "input"},
    %a : tensor<16x16xf32> {logical.name = "a", logical.role = "param"},
    %b : tensor<16x16xf32> {logical.name = "b", logical.role = "param"})
    -> (tensor<8x16xf16> {logical.name = "y"}, tensor<16x16xf32> {logical.updates = "a"},
        tensor<16x16xf32> {logical.updates = "b"}) {
  %a.low = logical.cast %a : tensor<16x16xf32> -> tensor<16x16xf16>
  %h = logical.matmul %x, %a.low : (tensor<8x16xf16>, tensor<16x16xf16>) -> tensor<8x16xf16>
  %a.exp = logical.exp %a.low : tensor<16x16xf16>
  %a.last = logical.neg %a.exp : tensor<16x16xf16>
  %b.low = logical.cast %b : tensor<16x16xf32> -> tensor<16x16xf16>
  %i = logical.matmul %h, %b.low : (tensor<8x16xf16>, tensor<16x16xf16>) -> tensor<8x16xf16>
  %y = logical.matmul %i, %a.last : (tensor<8x16xf16>, tensor<16x16xf16>) -> tensor<8x16xf16>
  %a.new = logical.neg %a : tensor<16x16xf32>
  %b.new = logical.neg %b : tensor<16x16xf32>
  func.return %y, %a.new, %b.new : tensor<8x16xf16>, tensor<16x16xf32>, tensor<16x16xf32>
}
"""


@pytest.mark.parametrize("others", [[], [["a.exp"]]])
def test_a_group_that_would_wait_for_itself_is_refused(others: list[list[str]]) -> None:
    """`a.last` reads `a.low` by way of `a.exp`, which is in no group with them."""
    weights = {name: np.ones((16, 16), np.float32) for name in ("a", "b")}
    groups = [["a.low", "a.last", "b.low"], *others]
    with pytest.raises(
        PolicyError, match="'a.last' reads others of the group through 'a.exp', which is not in it"
    ):
        aicf.compile(DETOUR, weights, "reference", policy={"groups": groups})
    whole = aicf.compile(DETOUR, weights, "reference", policy={"groups": [[*groups[0], "a.exp"]]})
    assert fused(whole) == ["a.low", "a.exp", "a.last", "b.low"]


def test_what_is_pinned_elsewhere_takes_no_other_cast_along() -> None:
    """Not listed themselves, the ops before and after a pinned one become no instruction together."""
    random = np.random.default_rng(3)
    weights = {name: random.uniform(-1, 1, (16, 16)).astype(np.float32) for name in ("a", "b")}
    policy = {"groups": [["a.exp"]], **STRICT}
    executable = aicf.compile(DETOUR, weights, "reference", policy=policy)
    assert fused(executable) == ["a.low", "b.low"]
    x = random.uniform(0, 1, (8, 16)).astype(np.float16)
    low = {name: array.astype(np.float16).astype(np.float64) for name, array in weights.items()}
    wanted = x.astype(np.float64) @ low["a"] @ low["b"] @ -np.exp(low["a"])
    found = executable.run({"x": x})["y"].astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=5e-3 * np.abs(wanted).max())
