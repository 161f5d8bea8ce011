"""The same state gives the same files and texts, save after save and whatever the hash seed of a process is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import aicf
from aicf.compilation.saved_program import read_saved_program
from tests.inference.models import WEIGHTS, classifier, rows
from tests.test_concurrency import in_new_process
from tests.training.test_checkpoint import new_step, train

MAKE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.test_same_bytes import make
make(Path(sys.argv[2]))
"""


def make(folder: Path) -> None:
    """Everything that AICF writes of one trained step and one session."""
    step = train(new_step(), 0, 2)
    step.save(folder / "first.ckpt")
    step.save(folder / "second.ckpt")
    step.save_program(folder / "step.aicf")
    saved = read_saved_program(folder / "step.aicf")
    saved.policy.save(folder / "policy.yaml")
    saved.policy.save(folder / "policy.json")
    exe = step.executable
    (folder / "explained").write_text(f"{exe.explain()}\n{exe.summary()}\n{exe.decisions}\n{exe!r}")
    (folder / "names").write_text(repr([*step.state_dict(), *step.weights(), *exe.memory().items()]))
    with aicf.InferenceSession(classifier(), WEIGHTS, dims="N=1,2", cache_dir=folder / "cache") as session:
        session.run([rows(2, 24)])
        session.run([rows(3, 24)])
        events = [(event.what, event.program) for event in session.report.events]
        (folder / "session").write_text(f"{events}\n{session.placement()}\n{session.memory}")


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_processes_with_other_hash_seeds_write_the_same_bytes(tmp_path: Path) -> None:
    made: list[dict[str, str]] = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        in_new_process(MAKE, str(folder), seed=seed)
        made.append(digests(folder))
    assert made[0] == made[1] == made[2]
    assert made[0]["first.ckpt"] == made[0]["second.ckpt"]
    assert len([name for name in made[0] if name.startswith("cache")]) == 2
