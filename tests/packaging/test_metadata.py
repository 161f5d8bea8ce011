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

from aicf.pass_files import passes_in
from aicf.universe import AICF_UNIVERSE

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LINKS = ("dialects", "passes", "tools")


def test_every_folder_of_modules_is_a_package():
    """`setup.py` finds packages by their `__init__.py`."""
    for top in ("aicf", *LINKS):
        for folder, names, files in os.walk(ROOT / top, followlinks=False):
            names[:] = [name for name in names if not (Path(folder) / name).is_symlink()]
            assert "__init__.py" in files or not any(name.endswith(".py") for name in files), folder


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
    if module.startswith("aicf.pytorch"):
        pytest.importorskip("torch")
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


def test_every_pass_is_found():
    """The universe reads files as text: it must find each class that is a pass."""
    classes = re.compile(
        r"^class (\w+Pass)\((?:ModulePass|NamedPipeline|FusionPattern\[\w+\])\)", re.MULTILINE
    )
    written = {
        name for path in (ROOT / "passes").rglob("*.py") for name in classes.findall(path.read_text("utf-8"))
    }
    assert written == {factory().__name__ for factory in AICF_UNIVERSE.all_passes.values()}


def test_passes_that_fuse_are_in_one_folder():
    """`aicf explain` takes what a pass in this folder decides for a decision about fusion, and nothing else."""
    fusing = {
        path.stem.replace("_", "-")
        for path in (ROOT / "passes").rglob("*.py")
        if '"not fused"' in path.read_text("utf-8")
    }
    assert "fuse-elementwise" in passes_in("fusion") and "sink-casts" in fusing
    assert fusing & AICF_UNIVERSE.all_passes.keys() <= passes_in("fusion") < AICF_UNIVERSE.all_passes.keys()


@pytest.mark.parametrize("name", AICF_UNIVERSE.all_dialects)
def test_dialects_load_by_name(name: str):
    assert AICF_UNIVERSE.all_dialects[name]().name == name


def test_no_name_clashes_with_xdsl():
    assert not AICF_UNIVERSE.all_passes.keys() & XDSL_UNIVERSE.all_passes.keys()
    assert not AICF_UNIVERSE.all_dialects.keys() & XDSL_UNIVERSE.all_dialects.keys()
