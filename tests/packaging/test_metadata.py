"""What pyproject.toml says agrees with the tree and with the code."""

from __future__ import annotations

import os
import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from xdsl.passes import ModulePass
from xdsl.universe import XDSL_UNIVERSE

from aicf.universe import AICF_UNIVERSE

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LINKS = ("dialects", "passes", "tools")


def packages_on_disk() -> set[str]:
    found: set[str] = set()
    for top in ("aicf", *LINKS):
        for folder, names, files in os.walk(ROOT / top, followlinks=False):
            names[:] = [
                name for name in names if not (Path(folder) / name).is_symlink() and name != "__pycache__"
            ]
            if any(name.endswith(".py") for name in files):
                parts = Path(folder).relative_to(ROOT).parts
                found.add(".".join(parts if parts[0] == "aicf" else ("aicf", *parts)))
    return found


def test_every_package_is_listed():
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == packages_on_disk()


def test_every_listed_package_has_an_init():
    folders = PROJECT["tool"]["setuptools"]["package-dir"]
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        top, rest = max(
            (
                (prefix, package[len(prefix) :])
                for prefix in folders
                if f"{package}.".startswith(f"{prefix}.")
            ),
            key=lambda pair: len(pair[0]),
        )
        assert (ROOT / folders[top] / rest.strip(".").replace(".", "/") / "__init__.py").is_file(), package


@pytest.mark.parametrize("name", LINKS)
def test_links_point_at_the_top_level_folders(name: str):
    assert (ROOT / "aicf" / name).is_symlink()
    assert os.readlink(ROOT / "aicf" / name) == f"../{name}"


@pytest.mark.parametrize(
    "target",
    [
        *PROJECT["project"]["scripts"].values(),
        *(value for group in PROJECT["project"]["entry-points"].values() for value in group.values()),
    ],
)
def test_entry_points_resolve(target: str):
    module, _, variable = target.partition(":")
    assert hasattr(import_module(module), variable)


def test_every_dependency_is_explained():
    text = (ROOT / "docs/dependencies.md").read_text("utf-8")
    project = PROJECT["project"]
    requirements = [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]
    for requirement in requirements:
        match = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert match is not None
        assert f"`{match.group()}`" in text, f"{requirement} is not named in docs/dependencies.md"


def test_runtime_dependencies_are_ranges():
    for requirement in PROJECT["project"]["dependencies"]:
        assert ">=" in requirement and ",<" in requirement, requirement


@pytest.mark.parametrize("name", AICF_UNIVERSE.all_passes)
def test_every_pass_is_named_as_its_file(name: str):
    factory = AICF_UNIVERSE.all_passes[name]
    module_pass = factory()
    assert issubclass(module_pass, ModulePass)
    assert module_pass.name == name
    passes = [
        member
        for member in vars(import_module(module_pass.__module__)).values()
        if isinstance(member, type)
        and issubclass(member, ModulePass)
        and member.__module__ == module_pass.__module__
    ]
    assert passes == [module_pass], "one file, one pass"


@pytest.mark.parametrize("name", AICF_UNIVERSE.all_dialects)
def test_dialects_load_by_name(name: str):
    assert AICF_UNIVERSE.all_dialects[name]().name == name


def test_no_name_clashes_with_xdsl():
    assert not AICF_UNIVERSE.all_passes.keys() & XDSL_UNIVERSE.all_passes.keys()
    assert not AICF_UNIVERSE.all_dialects.keys() & XDSL_UNIVERSE.all_dialects.keys()
