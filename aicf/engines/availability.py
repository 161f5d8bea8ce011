"""Whether an engine can run here, and what to do if it cannot. Versions are checked, too."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from aicf.support.extras import install


@dataclass(frozen=True)
class Availability:
    """What an engine says of this machine.

    Args:
        version: Of the engine, as its package states it; empty if it is not here.
        devices: What `device=` may name, in the engine's own words.
        missing: What is missing, one clause; empty if nothing is.
        remedy: How to get that, one clause.
    """

    version: str = ""
    devices: tuple[str, ...] = ()
    missing: str = ""
    remedy: str = ""

    @property
    def is_available(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    def __str__(self) -> str:
        return "yes" if self.is_available else f"{self.missing}; {self.remedy}"


@dataclass(frozen=True)
class Package:
    """A Python package that an engine needs.

    Args:
        module: What is imported; it has a `__version__`.
        lower, upper: The first version that is right, and the first later one that was not tested.
        extra: The extra of AICF that installs it.
    """

    module: str
    lower: str
    upper: str
    extra: str

    def find(self) -> tuple[Any, Availability]:
        """The imported module, and its version or what is wrong; the module is None if something is."""
        remedy = install(self.extra)
        try:
            found: Any = import_module(self.module)
        except ModuleNotFoundError as error:
            missing = "" if error.name == self.module else f" needs package {error.name}, which"
            return None, Availability(
                missing=f"package {self.module}{missing} is not installed", remedy=remedy
            )
        except (ImportError, OSError) as error:
            return None, Availability(
                missing=f"package {self.module} does not import: {error}", remedy=remedy
            )
        version = str(getattr(found, "__version__", ""))
        if not _numbers(self.lower) <= _numbers(version) < _numbers(self.upper):
            missing = f"package {self.module} {version or 'of unknown version'} is installed, {self.lower} or later "
            return None, Availability(
                version, missing=f"{missing}and before {self.upper} is needed", remedy=remedy
            )
        return found, Availability(version)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2026, 4, 1) of `2026.4.1-22982-e213a147257`."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return () if found is None else tuple(map(int, found.group().split(".")))
