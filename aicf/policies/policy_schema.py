"""The JSON Schema of policy files: for editors, which complete and check a file that they know the schema of.

It follows from the data classes of the sections. What only a model or a target can tell, such as the ids of ops, is not
in it. The installed package has it as the file `SCHEMA_FILE`, which `make docs` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from aicf.policies.class_schema import object_schema
from aicf.policies.fields import AUTO, SCHEMA_KEY
from aicf.policies.policy import KINDS, SECTIONS, AnySection
from aicf.policies.section import VERSION

SCHEMA_FILE = "policy.schema.json"
"""Name of the file, in this package and in `docs/reference`."""

_DRAFT = "http://json-schema.org/draft-07/schema#"
"""The newest draft that editors support whole."""


def policy_schema(kernels: Sequence[str] = (), libraries: Mapping[str, Sequence[str]] | None = None) -> str:
    """The schema as indented JSON: a file has sections, or fields of all of them in short.

    Args:
        kernels: Ids of kernels that editors propose; others are legal too.
        libraries: Names of libraries that they propose, by family.
    """
    sections = {kind.SECTION: _section_schema(kind, kernels, libraries or {}) for kind in KINDS}
    fields = {
        name: {"$ref": f"#/properties/{kind.SECTION}/properties/{name}"}
        for kind in reversed(KINDS)
        for name in kind.READERS
    }
    schema: dict[str, Any] = {
        "$schema": _DRAFT,
        "title": "Policy of AICF",
        "description": "Decisions of a compile: docs/policies.md",
        "type": ["object", "null"],
        "properties": {SCHEMA_KEY: {"type": "string"}, **sections, **fields},
        "additionalProperties": False,
        "anyOf": [
            {"propertyNames": {"enum": [SCHEMA_KEY, *SECTIONS]}},
            {"propertyNames": {"not": {"enum": list(SECTIONS)}}},
        ],
    }
    return json.dumps(schema, indent=2) + "\n"


def shipped_schema() -> str:
    """The schema that the package was installed with."""
    return files("aicf.policies").joinpath(SCHEMA_FILE).read_text("utf-8")


def _section_schema(
    kind: type[AnySection], kernels: Sequence[str], libraries: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    schemas: dict[str, Mapping[str, Any]] = {name: reader.schema for name, reader in kind.READERS.items()}
    schemas["version"] = {"const": VERSION}
    for name, names in {family: (AUTO, *names) for family, names in libraries.items()}.items():
        if name in schemas:
            schemas[name] = _proposing(names)
    if kernels and "kernels" in schemas:
        schemas["kernels"] = {"type": "object", "additionalProperties": _proposing(kernels)}
        schemas["forbid"] = {"type": "array", "items": _proposing(kernels)}
    summary = (kind.__doc__ or "").partition("\n")[0]
    # `kernel:` with nothing after it is the default.
    return {**object_schema(kind, schemas), "type": ["object", "null"], "description": summary}


def _proposing(names: Sequence[str]) -> dict[str, Any]:
    """Any text, of which editors propose some."""
    return {"anyOf": [{"enum": list(names)}, {"type": "string"}]}
