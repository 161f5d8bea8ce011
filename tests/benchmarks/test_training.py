# pyright: basic, reportMissingImports=false
# The modules of benchmarks/training are found by a path that the fixture sets.
"""Results of the training benchmark: what the promises make of figures, how runs add up, what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("gpu", "training"):
        monkeypatch.syspath_prepend(ROOT / "benchmarks" / folder)


def row(name: str, machine: str = "m", **entries: Any) -> dict[str, Any]:
    return {"name": name, "machine": machine, **entries}


@pytest.mark.parametrize(
    ("entry", "what", "measured", "reached"),
    [
        (row("mlp_64", us={"aicf": 45.0}), "a step, us", 45.0, True),
        (row("mlp_64", us={"aicf": 45.1}), "a step, us", 45.1, False),
        (
            row("encoder", us={"aicf": 7.0, "jax": 11.0, "torch_graph": 10.0}),
            "time relative to the best",
            0.7,
            True,
        ),
        (row("encoder", us={"aicf": 7.0}), "time relative to the best", None, None),
        (row("digits", us={"aicf": 3.0, "torch_eager": 5.0}), "time relative to PyTorch eager", 0.6, False),
        (row("encoder", bytes={"aicf": 90, "torch_eager": 100}), "peak memory relative to", 0.9, True),
        (row("encoder", bytes={"aicf": 100}, predicted_bytes={"aicf": 102}), "relative error", 0.02, False),
        (row("digits", error={"aicf": 3.0, "torch_eager": 1.0, "torch_compile": 2.0}), "error", 1.5, True),
    ],
)
def test_a_promise_is_held_against_the_figure(
    entry: dict[str, Any], what: str, measured: float | None, reached: bool | None
) -> None:
    from promises import evaluated

    said = evaluated([entry])
    (one,) = (each for each in said if each["row"] == entry["name"] and each["what"].startswith(what))
    assert (one["measured"], one["reached"]) == (measured, reached)


def test_newer_rows_replace_older_ones_and_their_machines() -> None:
    from outcome import merged

    older = {"machines": {"a": {}, "b": {}}, "rows": [row("mlp_64", "a", us={}), row("digits", "b", us={})]}
    newer = {"machines": {"c": {}}, "rows": [row("mlp_64", "c", us={"aicf": 1.0})]}
    both = merged(older, newer)
    assert [(each["name"], each["machine"]) for each in both["rows"]] == [("digits", "b"), ("mlp_64", "c")]
    assert both["machines"].keys() == {"b", "c"}


def test_the_page_says_what_the_result_says() -> None:
    from outcome import merged
    from pages import END, START, with_tables

    entry = row("mlp_64", us={"aicf": 40.25, "jax": 123.4}, error={"aicf": 1.2e-3}, bytes={"aicf": 12.5e6})
    result = merged({"machines": {}, "rows": []}, {"machines": {"m": {}}, "rows": [entry]})
    page = with_tables(f"before\n{START}\nold\n{END}\nafter\n", result)
    assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
    for figure in ("| 40.2 | 123 |", "| 1.2e-03 |", "| 12.5 |", "| <= 45 | 40.25 | yes |"):
        assert figure in page
    with pytest.raises(ValueError, match="no place for the tables"):
        with_tables("no marks", result)


def test_tables_name_every_work_and_rival() -> None:
    import pages
    from promises import PEERS, PROMISES
    from works import WORKS

    assert pages.WORKS.keys() == WORKS.keys()
    assert pages.NAMES.keys() == {"aicf", "aicf_budget", *PEERS}
    assert {promise.row for promise in PROMISES} == WORKS.keys()


def test_artifacts_begin_with_the_parameters_and_what_lies_beside(tmp_path: Path) -> None:
    from steps import first_values
    from works import WORKS, random_batch, random_parameters

    work = WORKS["digits"]
    parameters = random_parameters(work)
    others = {"step": np.zeros((), np.int64), "places": np.arange(6.0, dtype=np.float32).reshape(2, 3)}
    np.savez_compressed(tmp_path / "digits.npz", **others)
    values = first_values(tmp_path / "digits.aicf", parameters)
    assert values.keys() == {*work.parameters, *others}
    for name, array in {**parameters, **others}.items():
        assert values[name].dtype == array.dtype
        np.testing.assert_array_equal(values[name], array)
    x, y = random_batch(work, 3)
    assert x.shape == (64, 64) and y.shape == (64,) and set(y) <= set(range(10))


def test_the_committed_page_has_the_committed_result() -> None:
    from outcome import read
    from pages import with_tables

    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    assert with_tables(page, read(ROOT / "benchmarks" / "results" / "train.json")) == page
