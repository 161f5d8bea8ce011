"""The JSON Schema of policy files, with the kernels and libraries of all backends for editors to propose."""

from __future__ import annotations

from aicf.backends.common.user_kernel import CUSTOM
from aicf.backends.registry import get_kernels, libraries_by_family
from aicf.dialects.kinds import FAMILIES
from aicf.policies.kernel_policy import ATTENTION, MATH
from aicf.policies.policy_schema import policy_schema

BACKENDS = ("cpu", "cuda", "reference")
"""Those of this repository; what a plug-in adds is not the same everywhere."""


def schema_with_names() -> str:
    """The schema as indented JSON."""
    kernels = [
        name
        for backend in BACKENDS
        for name, kernel in get_kernels(backend).items()
        if kernel.kinds - {CUSTOM}
    ]
    return policy_schema(kernels, {family: _libraries(family) for family in FAMILIES})


def _libraries(family: str) -> list[str]:
    names = [name for backend in BACKENDS for name in libraries_by_family(backend)[family]]
    return sorted({*names, *([MATH] if family == ATTENTION else [])})
