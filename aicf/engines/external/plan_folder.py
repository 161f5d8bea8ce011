"""Plans of engines on disk, by what determines them. A plan is checked against its hash before the engine sees it.

Two processes may make the same plan at once; each writes it whole, and the last one stays. Plans hold native code.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path

from aicf.engines.record import Fingerprint
from aicf.engines.report import Report
from aicf.errors import ArtifactError
from aicf.support.files import write_whole

_HASH_BYTES = hashlib.sha256().digest_size


class PlanFolder:
    """A folder of plans.

    Args:
        folder: Made if it is not there.
        report: Is told of plans that cannot be used or kept.

    Raises:
        ArtifactError: the folder cannot be made.
    """

    def __init__(self, folder: Path, report: Report) -> None:
        self._folder, self._report = folder, report
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtifactError(
                f"cannot use the cache folder: {error.strerror}; choose one that can be written",
                location=str(folder),
            ) from error

    def path(self, fingerprint: Fingerprint) -> Path:
        """Where a plan is."""
        return self._folder / f"{fingerprint.engine}-{fingerprint.key}.plan"

    def load(self, fingerprint: Fingerprint, label: str) -> bytes | None:
        """A plan; None if there is none that is whole. `label` is for the report."""
        try:
            found = self.path(fingerprint).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.reject(label, str(error.strerror))
            return None
        expected, plan = found[:_HASH_BYTES], found[_HASH_BYTES:]
        if hashlib.sha256(plan).digest() != expected:
            self.reject(label, "it is damaged")
            return None
        return plan

    def reject(self, label: str, reason: str) -> None:
        """Says that a plan cannot be used, and is made again."""
        self._report.add(logging.WARNING, "rebuilt", label, f"the cached plan cannot be used: {reason}")

    def save(self, fingerprint: Fingerprint, label: str, plan: bytes) -> str:
        """Keeps a plan, and beside it what determines it; says in words what became of it."""
        path = self.path(fingerprint)
        text = json.dumps(asdict(fingerprint), indent=1, sort_keys=True)
        try:
            write_whole(path, lambda stream: stream.write(hashlib.sha256(plan).digest() + plan))
            write_whole(path.with_suffix(".json"), lambda stream: stream.write(f"{text}\n".encode()))
        except OSError as error:
            self._report.add(logging.WARNING, "unsaved", label, f"the cache cannot keep it: {error.strerror}")
            return "not cached"
        return f"cached as {path}"
