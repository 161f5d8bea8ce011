"""Which versions of packages are installed, read once in a process.

What that means for artifacts and compilers is not decided here.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def installed_version(package: str) -> str:
    """The version of an installed package. To read its metadata takes a tenth of a small compile.

    Raises PackageNotFoundError if it is not installed, also where it is asked for again: it may be by then.
    """
    return version(package)
