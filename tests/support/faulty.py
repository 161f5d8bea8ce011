"""The plug-in `faulty` as if it were installed: a folder of the search path with its package and its entry point."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aicf.backends.registry import get_backend, get_kernels, libraries_by_family

PACKAGE = Path(__file__).parents[1] / "plugin_faulty" / "aicf_plugin_faulty"


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs it into `folder`, for this process and those that it starts."""
    (folder / PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
    about = folder / "aicf_plugin_faulty-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: aicf-plugin-faulty\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[aicf.backends]\nfaulty = aicf_plugin_faulty:FaultyBackend\n")
    monkeypatch.syspath_prepend(folder)
    paths = [str(folder), str(PACKAGE.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    yield
    # A backend that is not installed any more is not to be found by other tests.
    for cache in (get_backend, get_kernels, libraries_by_family):
        cache.cache_clear()
