"""Puts the data of a report into one HTML page, with the style and the scripts of the folder `assets`.

The page loads nothing: its security policy allows the scripts and the style that it holds, by their hashes, and no
address. Data stands in it as JSON in which no character can end the element that holds it.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.resources import files
from types import ModuleType

from aicf.errors import BackendUnavailable
from aicf.report.contents import Report
from aicf.support.dataclass_json import to_json_value
from aicf.support.extras import install

SCRIPTS = (
    "dom",
    "figures",
    "report",
    "palette",
    "selection",
    "virtual_list",
    "lanes",
    "line_diff",
    "overview",
    "details",
    "program",
    "memory",
    "saves",
    "passes",
    "ledger",
    "compare",
    "main",
)
"""In the order in which they stand in the page: each may use what those before it define."""


def html_page(report: Report) -> str:
    """The page of a report. The same report gives the same text.

    Raises:
        BackendUnavailable: the template engine is not installed.
    """
    jinja2, markupsafe = _template_engine()
    style, scripts = _asset("style.css"), [_asset(f"scripts/{name}.js") for name in SCRIPTS]
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    names = dict.fromkeys(compiled.name for compiled in report.compiled)
    dumps = partial(json.dumps, separators=(",", ":"), allow_nan=False)
    return environment.from_string(_asset("page.html")).render(
        title=f"{' and '.join(names)} - AICF report",
        security=_security(style, scripts),
        style=markupsafe.Markup(style),
        data=jinja2.utils.htmlsafe_json_dumps(to_json_value(report), dumps),
        scripts=[markupsafe.Markup(script) for script in scripts],
    )


def _template_engine() -> tuple[ModuleType, ModuleType]:
    try:
        return import_module("jinja2"), import_module("markupsafe")
    except ImportError as error:
        raise BackendUnavailable(
            f"a report needs jinja2, which is not installed here; get it with {install('view')}"
        ) from error


def _asset(name: str) -> str:
    return files("aicf.report").joinpath("assets", name).read_text("utf-8")


def _security(style: str, scripts: Sequence[str]) -> str:
    """The content security policy: nothing but these texts, from nowhere."""
    allowed = " ".join(map(_hash, scripts))
    return f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {_hash(style)}; script-src {allowed}"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
