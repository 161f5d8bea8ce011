"""The JSON Schema of policy files lets pass what the reader lets pass, by a validator that is not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from aicf.errors import PolicyError
from aicf.policies.class_schema import descriptions
from aicf.policies.policy import KINDS, Policy
from aicf.policies.policy_schema import SCHEMA_FILE, shipped_schema
from aicf.tools.policy_schema import schema_with_names
from tests.policies.test_execution_policy import policies as execution_policies
from tests.policies.test_kernel_policy import FULL
from tests.policies.test_kernel_policy import policies as kernel_policies
from tests.policies.test_precision_policy import policies as precision_policies

SCHEMA: dict[str, Any] = json.loads(shipped_schema())
VALIDATE = fastjsonschema.compile(SCHEMA)
PUBLISHED = Path(__file__).parents[2] / "docs" / "reference" / SCHEMA_FILE


def passes_schema(value: object) -> bool:
    try:
        VALIDATE(value)
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


def passes_reader(value: object) -> bool:
    try:
        Policy.from_json_value(value)
    except PolicyError:
        return False
    return True


@given(st.builds(Policy, kernel_policies, execution_policies, precision_policies))
def test_what_policies_are_written_as_passes(policy: Policy) -> None:
    assert passes_schema(policy.to_json_value())


TEXTS = [
    "{streams: 2}",
    "{streams: -1}",
    "{streams: two}",
    "{stream: 2}",
    "{streams_of: {main: -2}}",
    "{kernel: , execution: {streams: 2}}",
    "{kernel: {tf32: true}, streams: 2}",
    "{kernel: {streams: 2}}",
    "{kernel: []}",
    "{version: 1}",
    "{version: 2}",
    "{determinism: bitwize}",
    "{tf32: 1}",
    "{fusion: {norm: false}}",
    "{fusion: {norm: 0}}",
    "{fusion: {norn: false}}",
    "{kernels: {fc1: my.kernel, gemm: cpu.gemm_avx2}}",
    "{kernels: {fc1: 3}}",
    "{records: {fc1: {tile: [1, 2.5, {deep: true}]}}}",
    "{records: {fc1: 3}}",
    "{matmul: native, attention: math, conv: of_a_plug_in}",
    "{matmul: [native]}",
    "{groups: [[a, b], [c]]}",
    "{groups: [a]}",
    "{forbid: [cpu.gemm_avx2, of.a_plug_in]}",
    "{layouts: {'*': row_major, conv: channels_last}}",
    "{layouts: {conv: nhwc}}",
    "{bindings: {x: staged}}",
    "{bindings: {x: copied}}",
    "{to: int8, rest: f16, ranges: {fc1: [[-1, 2.5], [0, 1]]}}",
    "{ranges: {fc1: [[1]]}}",
    "{smoothing: {fc1: [1, 0.5]}}",
    "{smoothing: {fc1: one}}",
    "{keep: {metric: top1, loss: 0.5 %}}",
    "{keep: {metric: top1, loss: 0.005}}",
    "{keep: {metric: top5, loss: 1}}",
    "{$schema: policy.schema.json, streams: 2}",
    "{$schema: policy.schema.json, execution: {streams: 2}}",
    "{$schema: 3}",
    "[1]",
    "{}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_schema_and_reader_agree(text: str) -> None:
    value = yaml.safe_load(text)
    assert passes_schema(value) == passes_reader(value)


def test_the_texts_are_of_both_kinds() -> None:
    legal = [passes_reader(yaml.safe_load(text)) for text in TEXTS]
    assert sum(legal) > 15 and len(legal) - sum(legal) > 15


def test_files_may_name_their_schema(tmp_path: Path) -> None:
    policy = Policy(FULL)
    for path, key in ((tmp_path / "p.json", None), (tmp_path / "k.yaml", "kernel")):
        value = policy.to_json_value() if key is None else {key: FULL.to_json_value()}
        path.write_text(json.dumps({"$schema": "./policy.schema.json", **value}))
        assert Policy.load(path) == policy
    assert type(FULL).load(tmp_path / "k.yaml") == FULL
    (tmp_path / "p.json").write_text('{"$schema": 3}')
    with pytest.raises(PolicyError, match=r"p.json: \$schema: expected a string, got 3"):
        Policy.load(tmp_path / "p.json")


@pytest.mark.parametrize("kind", KINDS)
def test_editors_get_a_text_and_a_default_for_each_field(kind: type[Any]) -> None:
    properties = SCHEMA["properties"][kind.SECTION]["properties"]
    assert properties.keys() == kind.READERS.keys() == descriptions(kind).keys()
    for name, property_ in properties.items():
        assert property_["description"], name
        default = getattr(kind(), name)
        if isinstance(default, bool | int | str):
            assert property_["default"] == default


def test_editors_propose_kernels_and_libraries() -> None:
    kernel = SCHEMA["properties"]["kernel"]["properties"]
    assert "cpu.gemm_avx2" in kernel["kernels"]["additionalProperties"]["anyOf"][0]["enum"]
    assert "math" in kernel["attention"]["anyOf"][0]["enum"]


def test_the_file_is_the_one_that_is_published() -> None:
    assert shipped_schema() == schema_with_names() == PUBLISHED.read_text("utf-8")
