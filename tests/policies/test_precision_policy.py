"""The section `precision`: what it may say, and every form of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicf.errors import PolicyError
from aicf.policies.accuracy_goal import AccuracyGoal
from aicf.policies.policy import Policy
from aicf.policies.precision_policy import PrecisionPolicy

ids = st.text(min_size=1, max_size=8)
numbers = st.floats(-1e6, 1e6)
pairs = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
policies = st.builds(
    PrecisionPolicy,
    to=st.sampled_from(["unchanged", "bf16", "f16", "int8"]),
    ops=st.dictionaries(ids, st.sampled_from(["f32", "bf16", "int8"]), max_size=3),
    ranges=st.dictionaries(ids, st.lists(pairs, max_size=2).map(tuple), max_size=3),
    activations=st.sampled_from(["symmetric", "asymmetric"]),
    smoothing=st.dictionaries(ids, st.lists(st.floats(1e-3, 1e3), max_size=3).map(tuple), max_size=2),
    packed_activations=st.sampled_from(["f32", "int8"]),
    corrections=st.dictionaries(ids, st.lists(numbers, max_size=3).map(tuple), max_size=2),
    method=st.sampled_from(["none", "minmax", "entropy"]),
    keep=st.sampled_from([{}, {"metric": "top1", "loss": "0.5 %"}, {"metric": "error", "loss": 0.01}]),
)


@given(policies)
def test_every_form_gives_the_same_policy_back(precision: PrecisionPolicy) -> None:
    policy = Policy(precision=precision)
    assert Policy.from_json_value(policy.to_json_value()) == policy
    assert Policy.from_text(policy.to_yaml()) == policy
    assert Policy.from_text(policy.to_line()) == policy
    assert PrecisionPolicy.from_attr(precision.to_attr()) == precision


def test_what_it_says_of_an_op() -> None:
    policy = PrecisionPolicy(to="int8", ops={"a": "f32", "b": "bf16"})
    assert [policy.precision_of(name) for name in "abc"] == ["f32", "bf16", "int8"]
    assert PrecisionPolicy().precision_of("a") == "f32" and not PrecisionPolicy(ops={"a": "f32"}).changes
    assert PrecisionPolicy(ops={"a": "f16"}).changes and policy.request is None
    assert PrecisionPolicy(method="minmax").request == "method"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"to": "int4"}, "to: 'int4' is not legal; did you mean 'int8'?"),
    ({"ops": {"a": "unchanged"}}, "ops.a: 'unchanged' is not legal"),
    ({"ranges": {"a": [1, 2]}}, "ranges.a[0]: expected a list, got 1"),
    ({"ranges": {"a": [[1, 2, 3]]}}, "ranges.a[0]: expected two numbers, got [1.0, 2.0, 3.0]"),
    ({"ranges": {"a": [[2, 1]]}}, "ranges.a[0]: 2.0 to 1.0 is no range; the smaller number comes first"),
    ({"ranges": {"a": [[0, float("nan")]]}}, "ranges.a[0][1]: expected a finite number"),
    ({"smoothing": {"a": [1, 0]}}, "smoothing.a[1]: must be above 0, got 0.0"),
    ({"corrections": {"a": "1"}}, 'corrections.a: expected a list, got "1"'),
    ({"method": "mean"}, "method: 'mean' is not legal"),
    ({"keep": {"metric": "top1"}}, "keep: it has a metric and a loss"),
    ({"keep": {"metric": "top1", "loss": "half"}}, "keep.loss: 'half' is no share"),
    ({"keep": "top1=1%"}, 'keep: expected an object, got "top1=1%"'),
    ({"activations": "signed"}, "activations: 'signed' is not legal"),
]


@pytest.mark.parametrize(("value", "message"), WRONG)
def test_errors_name_the_path(value: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as error:
        Policy.from_json_value({"precision": value})
    assert error.value.message.startswith(message)


def test_goals() -> None:
    expected = AccuracyGoal("top1", 0.005)
    for given_ in ("top1=0.5%", "top1 = 0.5 %", "top1=0.005", {"metric": "top1", "loss": "0.5%"}, expected):
        assert AccuracyGoal.of(given_) == expected
    assert str(expected) == "top1=0.5%" and AccuracyGoal.of(str(expected)) == expected
    assert AccuracyGoal.of(expected.to_json_value()) == expected
