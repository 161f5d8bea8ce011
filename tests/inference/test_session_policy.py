"""`policy=` of a session: all sections at once, beside those that are given one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aicf
from aicf import InferenceSession
from aicf.errors import InputMismatch, PolicyError
from tests.inference.models import WEIGHTS, classifier, rows

pytestmark = pytest.mark.usefixtures("few_objects")
KERNEL = "cpu.gemm_portable"
"""What no pass chooses by itself."""
BOTH = aicf.Policy().with_(kernels={"fc": KERNEL}, new_shapes="refuse")


def forms(folder: Path) -> list[Any]:
    BOTH.save(folder / "policy.yaml")
    return [
        BOTH,
        {"kernel": {"kernels": {"fc": KERNEL}}, "execution": {"new_shapes": "refuse"}},
        str(folder / "policy.yaml"),
    ]


def test_no_pass_chooses_it() -> None:
    with InferenceSession(classifier(), WEIGHTS, dims="N=1") as session:
        assert KERNEL not in str(session.placement())


def test_every_form_reaches_compiles_and_limits(tmp_path: Path) -> None:
    for form in forms(tmp_path):
        with InferenceSession(classifier(), WEIGHTS, dims="N=1", policy=form) as session:
            assert KERNEL in str(session.placement())
            with pytest.raises(InputMismatch, match="new_shapes: refuse"):
                session.run([rows(2, 24)])


def test_sections_add_to_the_policy() -> None:
    options = {
        "policy": {"kernels": {"fc": KERNEL}},
        "exec_policy": aicf.ExecutionPolicy(new_shapes="refuse"),
    }
    with InferenceSession(classifier(), WEIGHTS, dims="N=1", **options) as session:
        assert KERNEL in str(session.placement())
        with pytest.raises(InputMismatch, match="new_shapes: refuse"):
            session.run([rows(2, 24)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"policy": "{max_programs: 2}", "exec_policy": {"max_programs": 3}},
            "max_programs: 2 in policy=, 3 in exec_policy=; drop one of them",
        ),
        (
            {"policy": aicf.KernelPolicy(kernels={"fc": "a"}), "kernel_policy": {"kernels": {"fc": "b"}}},
            "kernels.fc: 'a' in policy=, 'b' in kernel_policy=; drop one of them",
        ),
        ({"policy": 5}, "the policy is 5; give values by name, a dictionary"),
        ({"policy": "{stream: 2}"}, "stream: unknown field; did you mean 'streams' or 'streams_of'?"),
    ],
)
def test_contradictions_name_both_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError) as error:
        InferenceSession(classifier(), WEIGHTS, **options)
    assert error.value.message.startswith(message)
