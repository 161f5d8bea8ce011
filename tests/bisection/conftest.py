"""The plug-in with faults is installed here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.faulty import installed


@pytest.fixture(scope="package")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        yield from installed(tmp_path_factory.mktemp("faulty"), patch)
