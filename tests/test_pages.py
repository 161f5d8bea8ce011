"""Pages of docs whose examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.compilation.extensions import POINTS
from aicf.passes.kernels.kind_definitions import BODIES
from aicf.testing import temporary_definitions

DOCS = Path(__file__).parents[1] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def run(name: str) -> dict[str, Any]:
    """The names that the Python of a page leaves."""
    names: dict[str, Any] = {"__name__": "page"}
    for example in re.findall(r"```python\n(.*?)```", page(name), re.DOTALL):
        exec(compile(example, str(DOCS / name), "exec"), names)
    return names


def test_one_graph_prefills_and_decodes() -> None:
    """The calls together give causal attention over the whole sequence."""
    names = run("state.md")
    tokens, weights = names["tokens"].astype(np.float64), names["weights"]
    query, key, value = (tokens @ weights[name].astype(np.float64).T for name in ("wq", "wk", "wv"))
    scores = np.where(np.tri(11, dtype=bool), query @ key.T / 4, -np.inf)
    weight = np.exp(scores - scores.max(1, keepdims=True))
    wanted = weight / weight.sum(1, keepdims=True) @ value
    np.testing.assert_allclose(names["generated"], wanted, rtol=1e-4, atol=1e-5)
    assert not names["exe"].state("keys")["keys"].any()


def test_emit_ir_by_hand() -> None:
    """The program computes what it says, and the page lists the kinds that have a body, all of them."""
    names = run("ir-design.md")
    x, w = (names[name].astype(np.float64) for name in ("x", "w"))
    np.testing.assert_allclose(names["y"], (x @ w.T) ** 2, rtol=1e-5, atol=1e-5)
    assert "constraints {may_alias" in names["exe"].ir("emit") and "no_reorder" in names["exe"].ir("emit")
    table = page("ir-design.md").partition("These kinds have a body of their own")[2]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(BODIES)


def test_runtime_replays() -> None:
    names = run("runtime.md")
    wanted = np.maximum(names["feed"].astype(np.float64) @ names["w"].astype(np.float64).T, 0)
    np.testing.assert_allclose(names["result"], wanted, rtol=1e-5, atol=1e-5)


def test_extensions_run() -> None:
    names = run("extending.md")
    x = names["x"].astype(np.float64)
    np.testing.assert_allclose(names["y"], np.tanh(x), rtol=1e-5, atol=1e-6)
    listed = re.findall(r"^\| `(\w+)` \|", page("extending.md"), re.MULTILINE)
    assert listed == list(POINTS)


def test_kernels_run() -> None:
    with temporary_definitions():
        names = run("kernels.md")
    assert names["y"].shape == (32, 8)
    np.testing.assert_allclose(names["y"].ravel(), 2 * np.tanh(np.linspace(-4, 4, 256) / 2), atol=1e-6)


def test_every_error_is_explained() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", page("errors.md"), re.MULTILINE))
    errors = {
        name
        for name in aicf.__all__
        if isinstance(member := getattr(aicf, name), type) and issubclass(member, Exception)
    }
    assert listed == errors


@pytest.mark.parametrize("name", ["state.md", "extending.md", "errors.md", "ir-design.md", "runtime.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page(name)):
        assert (DOCS / target).exists(), target
