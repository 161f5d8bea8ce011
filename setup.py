"""Which packages there are: those on disk. Everything else is in pyproject.toml.

`packages.find` cannot say it: the top-level folders are subpackages of `aicf`, and a source distribution has no links.
"""

from setuptools import find_packages, setup

FOLDERS = ("dialects", "passes", "tools")

own = find_packages(
    include=["aicf", "aicf.*"], exclude=[f"aicf.{name}{end}" for name in FOLDERS for end in ("", ".*")]
)
below = [
    f"aicf.{name}"
    for name in find_packages(include=[f"{name}{end}" for name in FOLDERS for end in ("", ".*")])
]

setup(
    packages=own + below,
    package_dir={"aicf": "aicf", **{f"aicf.{name}": name for name in FOLDERS}},
)
