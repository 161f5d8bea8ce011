"""Which floor may import which, as one table, checked on the source: imports inside functions count as well.

Names loaded at run time by string (the universe, the registry of backends) are the sanctioned way down and are not
imports; what they must not load early is checked in a fresh process.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"aicf": "aicf", "dialects": "aicf.dialects", "passes": "aicf.passes", "tools": "aicf.tools"}
"""Folder of the repository to the package it is imported as."""

ANYTHING = ("aicf",)
EVERYWHERE = ("aicf.errors", "aicf.support")
"""What every module may import; they import nothing else."""
EMIT = (
    "aicf.dialects.emit",
    "aicf.dialects.emit_types",
    "aicf.dialects.emit_kernels",
    "aicf.dialects.emit_updates",
    "aicf.dialects.host_formulas",
    "aicf.dialects.kinds",
)
BODIES = ("aicf.dialects.logical", "aicf.dialects.block_schemes", "aicf.dialects.block_bits")
"""What the bodies of instructions are written in."""
CUSTOM = ("aicf.dialects.custom_ops",)
"""Definitions of ops by packages, which the registry imports."""
JSON_FORMS = ("aicf.dialects.json_values",)
CONTRACT = (
    "aicf.backends.base",
    "aicf.backends.common.kernel",
    "aicf.backends.common.record",
    "aicf.backends.common.user_kernel",
    "aicf.backends.common.workload",
    "aicf.backends.native",
    "aicf.backends.registry",
)
COMMON = ("aicf.backends.common",)
HOST = ("aicf.backends.host",)
MACHINE_CODE = ("aicf.backends.machine_code",)

IR = ("aicf.dialects", "aicf.semantics", "aicf.policies", *CONTRACT)

# Folders of passes: each may import the folders of its row, and none imports one below its own row.
PASSES: dict[str, tuple[str, ...]] = {
    f"aicf.passes.{folder}": (*IR, *(f"aicf.passes.{name}" for name in below))
    for folder, below in {
        "support": (),
        "analysis": ("support",),
        "bodies": ("analysis", "support"),
        "onnx": ("support",),
        "logical": ("bodies", "onnx", "support"),
        "fusion": ("analysis", "bodies", "logical", "support"),
        "layout": ("bodies", "fusion", "support"),
        "emit": ("analysis", "bodies", "fusion", "layout", "support"),
        "legalize": ("bodies", "emit", "fusion", "layout", "logical", "support"),
        "training": ("bodies", "fusion", "logical", "support"),
        "verify": ("analysis", "bodies", "emit", "support"),
        "kernels": ("analysis", "bodies", "emit", "fusion", "logical", "support", "verify"),
        "print": ("analysis", "bodies", "support"),
        "pipelines": (
            "emit",
            "fusion",
            "kernels",
            "layout",
            "legalize",
            "logical",
            "onnx",
            "support",
            "training",
            "verify",
        ),
    }.items()
}

# Module prefix (the longest match decides) to what it may import besides itself and EVERYWHERE.
ALLOWED: dict[str, tuple[str, ...]] = {
    "aicf": ANYTHING,  # aicf/__init__.py, the public surface
    "aicf.errors": (),
    "aicf.support": (),
    "aicf.saving": (),
    "aicf.inspection": (),
    "aicf.compilation": ANYTHING,
    "aicf.saving.cache_folder": ("aicf.saving.artifact",),
    "aicf.saving.native_file": (
        "aicf.backends.native",
        "aicf.runtime.capture_plan",
    ),
    "aicf.pass_files": ("aicf.passes",),
    "aicf.universe": ("aicf.pass_files",),
    "aicf.dialects": (),
    "aicf.semantics": ("aicf.dialects",),
    "aicf.policies": ("aicf.dialects.kinds", *JSON_FORMS),
    "aicf.backends": (*EMIT, "aicf.dialects.types", *CUSTOM, *CONTRACT),
    "aicf.backends.common": (
        *EMIT,
        *JSON_FORMS,
        *BODIES,
        *CUSTOM,
        "aicf.dialects.types",
        "aicf.backends.base",
    ),
    "aicf.backends.reference": (
        *EMIT,
        *BODIES,
        "aicf.dialects.types",
        *CONTRACT,
        *HOST,
        "aicf.semantics",
    ),
    "aicf.backends.cpu": (
        *EMIT,
        *BODIES,
        "aicf.dialects.printing",
        "aicf.dialects.window_counts",
        "aicf.dialects.types",
        *CONTRACT,
        *HOST,
        *COMMON,
        *MACHINE_CODE,
    ),
    "aicf.backends.cuda": (
        *EMIT,
        "aicf.dialects.block_bits",
        "aicf.dialects.block_schemes",
        "aicf.dialects.window_counts",
        "aicf.dialects.types",
        *CONTRACT,
        *COMMON,
        *JSON_FORMS,
    ),
    "aicf.inspection.random_inputs": ("aicf.runtime",),
    "aicf.runtime": (
        *EMIT,
        "aicf.dialects.body_text",
        "aicf.dialects.types",
        "aicf.dialects.logical",
        "aicf.dialects.step_names",
        *CONTRACT,
        *MACHINE_CODE,
        *JSON_FORMS,
    ),
    "aicf.passes": IR,
    **PASSES,
    "aicf.frontends": ("aicf.dialects",),
    "aicf.kernels": (*IR, "aicf.backends.common.user_code", "aicf.frontends"),
    "aicf.testing": ANYTHING,
    "aicf.inspection.benched": (*JSON_FORMS, "aicf.inspection.explain"),
    "aicf.inspection.attribution": ("aicf.dialects", "aicf.frontends", "aicf.passes"),
    "aicf.bisection": ANYTHING,
    "aicf.calibration": ANYTHING,
    "aicf.certificates": ANYTHING,
    "aicf.comparison": ANYTHING,
    "aicf.engines": ANYTHING,
    "aicf.inference": ANYTHING,
    "aicf.llm": ANYTHING,
    "aicf.inspection.explain": (
        "aicf.inspection.explain_precision",
        "aicf.pass_files",
        "aicf.runtime",
    ),
    "aicf.inspection.explain_precision": ("aicf.inspection.explain",),
    "aicf.inspection.summary": ("aicf.inspection.explain", "aicf.runtime"),
    "aicf.inspection.trace": ("aicf.inspection.explain", "aicf.runtime"),
    "aicf.inspection.value_names": ("aicf.inspection.explain", "aicf.runtime"),
    "aicf.inspection.why_not": ("aicf.inspection.explain", "aicf.runtime"),
    "aicf.pytorch": ANYTHING,
    "aicf.report": ANYTHING,
    "aicf.inspection.roofline": (*IR, "aicf.inspection.attribution", "aicf.passes", "aicf.runtime"),
    "aicf.tools": ANYTHING,
    "aicf.training": ANYTHING,
    "aicf.tuning": ANYTHING,
    "aicf.saving.tensor_bytes": ("aicf.runtime.tensors",),
}

# Modules that must load without the compiler's heavy dependencies.
LIGHT = ("aicf.universe", "aicf.errors", "aicf.saving.artifact", "aicf.runtime", *CONTRACT)
HEAVY = ("numba", "llvmlite", "onnx", "torch")


def modules() -> Iterator[tuple[str, Path]]:
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            if folder == "aicf" and parts[0] in FOLDERS:
                continue  # a link
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


MODULES = dict(modules())


def imports(module: str, path: Path, body: Sequence[ast.AST] = ()) -> Iterator[tuple[int, str]]:
    """Line and full name of every import in a file, or of those that `body` holds itself."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in body or ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base]).rstrip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield node.lineno, full if full in MODULES else base


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def rule_of(module: str) -> str:
    # The row "aicf" is for the package's own __init__, not a default: a new folder needs a row of its own.
    if module == "aicf":
        return module
    return max((row for row in ALLOWED if row != "aicf" and is_within(module, row)), key=len, default="")


@pytest.mark.parametrize("module", MODULES)
def test_imports_follow_the_table(module: str):
    rule = rule_of(module)
    assert rule, f"{module} has no row in ALLOWED: say which floor it is on"
    legal = (rule, *EVERYWHERE, *ALLOWED[rule])
    wrong = [
        f"{MODULES[module].relative_to(ROOT)}:{line}: {rule} may not import {name}"
        for line, name in imports(module, MODULES[module])
        if is_within(name, "aicf") and not any(is_within(name, prefix) for prefix in legal)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", [name for name in MODULES if any(is_within(name, row) for row in LIGHT)])
def test_light_modules_import_nothing_heavy(module: str):
    wrong = [name for _, name in imports(module, MODULES[module]) if name.partition(".")[0] in HEAVY]
    assert not wrong


def test_only_its_own_package_imports_pytorch():
    """What reads graphs of PyTorch gets them from PyTorch, and goes by names."""
    wrong = [
        f"{module}: {name}"
        for module, path in MODULES.items()
        if not is_within(module, "aicf.pytorch")
        for _, name in imports(module, path)
        if name.partition(".")[0] == "torch"
    ]
    assert not wrong


def test_folders_of_passes_import_one_way():
    above: set[str] = set()
    for folder, legal in PASSES.items():
        assert {name for name in legal if name in PASSES} <= above, folder
        above.add(folder)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not is_for_types(child):
            yield child
            yield from run_time_nodes(child)


@cache
def run_time_imports(module: str) -> frozenset[str]:
    """All that a module imports while it runs: those inside functions count, those for type checkers do not."""
    nodes = list(run_time_nodes(ast.parse(MODULES[module].read_text("utf-8"))))
    return frozenset(name for _, name in imports(module, MODULES[module], nodes or [ast.Pass()]))


@cache
def top_level_imports(module: str) -> frozenset[str]:
    """All that is imported with a module: those inside functions do not count."""
    body = ast.parse(MODULES[module].read_text("utf-8")).body
    return frozenset(name for _, name in imports(module, MODULES[module], body or [ast.Pass()]))


def closure(module: str, imported: Callable[[str], Iterable[str]]) -> set[str]:
    """A module and all modules of ours that it imports, directly or not."""
    reached, left = set[str](), [module]
    while left:
        name = left.pop()
        if name in MODULES and name not in reached:
            reached.add(name)
            left += imported(name)
    return reached


KERNELS = [name for name in MODULES if ".families." in name and name.endswith("kernel")]


@pytest.mark.parametrize("module", KERNELS)
def test_kernels_load_no_code_generator(module: str):
    """What selects and prices kernels runs where no code is made: on any machine, for any target. No function of it
    loads a code generator later, either."""
    reached = closure(module, run_time_imports)
    assert not {name for name in reached if ".codegen" in name or ".compiler" in name}
    heavy = {
        name
        for other in closure(module, top_level_imports)
        for name in top_level_imports(other)
        if name.partition(".")[0] in HEAVY
    }
    assert not heavy


def test_no_module_imports_itself_by_way_of_others():
    """Imports inside functions count, those for type checkers do not."""
    graph = {module: (run_time_imports(module) & MODULES.keys()) - {module} for module in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_the_table_has_no_dead_row():
    dead = [row for row in ALLOWED if row not in MODULES]
    assert not dead


def test_relative_imports_and_functions_are_seen(tmp_path: Path):
    path = tmp_path / "m.py"
    path.write_text(
        "def f():\n    from ..runtime import graph\n    import aicf.compilation.compiler\n    from . import base\n"
    )
    found = [name for _, name in imports("aicf.backends.m", path)]
    assert found[1:] == ["aicf.compilation.compiler", "aicf.backends.base"] and is_within(
        found[0], "aicf.runtime"
    )


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import aicf.universe", ["numpy", "numba", "aicf.dialects.logical", "aicf.dialects.emit"]),
        ("import aicf.saving.artifact", ["numpy", "numba", "xdsl"]),
        ("import aicf.inspection.explain; aicf.inspection.explain.passes_in('fusion')", ["numba", "xdsl"]),
    ],
)
def test_a_fresh_process_loads_no_more_than_it_needs(statement: str, absent: list[str]):
    program = f"import sys\n{statement}\nprint([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
