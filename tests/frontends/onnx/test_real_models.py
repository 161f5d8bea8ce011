# pyright: basic, reportMissingImports=false
# The modules of examples/models are found by a path that the fixture sets.
"""Models of three packages with their own weights, on real input: all outputs are ONNX Runtime's, labels included."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples" / "models"
WITHIN = 1e-4
BATCH, OF_EACH_ENDING = 64, 64
"""Files that are looked at together, and those of one ending."""


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)


def reference(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Recorder:
    """Passes calls on, and keeps what they got and gave."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run
        self.calls: list[tuple[Any, Any]] = []

    def __call__(self, *args: Any) -> Any:
        found = self.run(*args)
        self.calls.append((args, found))
        return found


# silero-vad


@pytest.mark.parametrize("name", ["silero_vad_op18_ifless.onnx", "silero_vad_16k_op15.onnx"])
def test_speech_is_found_where_onnxruntime_finds_it(name: str) -> None:
    """Each carries its own state from frame to frame, so that what differs would add up."""
    from detect_speech import SPEECH, frames, judge, model_path, open_session
    from voice import RATE, speak

    sound, _ = speak(" aei oua ", seed=1)
    peer, state = reference(model_path(name)), np.zeros((2, 1, 128), np.float32)
    found = list(judge(open_session(model_path(name)), sound))
    labels = set()
    for frame, (probability, carried) in zip(frames(sound), found, strict=True):
        expected, state = peer.run(None, {"input": frame, "state": state, "sr": np.array(RATE)})
        assert abs(probability - expected[0, 0]) < WITHIN
        assert (probability > SPEECH) == (expected[0, 0] > SPEECH)
        np.testing.assert_allclose(carried, state, rtol=WITHIN, atol=WITHIN)
        labels.add(probability > SPEECH)
    assert labels == {True, False}


# magika


def files_of_this_repository() -> list[Path]:
    """Of what git keeps, some of each ending, drawn at random."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    by_ending = defaultdict[str, list[Path]](list)
    for path in filter(Path.is_file, paths):
        by_ending[path.suffix].append(path)
    draw = random.Random(0)
    found = [
        path for each in by_ending.values() for path in draw.sample(each, min(len(each), OF_EACH_ENDING))
    ]
    draw.shuffle(found)
    # Another number of files takes a program of its own, so some fill the last batch up.
    return found + draw.choices(found, k=-len(found) % BATCH)


def test_files_have_the_types_that_onnxruntime_gives_them() -> None:
    """Labels and scores of files of many types. The model's norms take the mean of squares less the square of the mean
    over an outer axis, which cancels digits, with ONNX Runtime as here: of ten thousand scores one may be up to 3e-4
    apart."""
    from file_types import detector
    from magika import Magika

    ours, peers = detector(), Magika()
    wanted, got = Recorder(peers._onnx_session.run), Recorder(ours._onnx_session.run)
    peers._onnx_session, ours._onnx_session = _Running(wanted), _Running(got)
    paths = files_of_this_repository()
    labels = set()
    for start in range(0, len(paths), BATCH):
        chunk = paths[start : start + BATCH]
        for found, expected in zip(ours.identify_paths(chunk), peers.identify_paths(chunk), strict=True):
            assert (found.output.label, found.dl.label) == (expected.output.label, expected.dl.label)
            labels.add(str(found.output.label))
    assert {"python", "markdown", "toml"} <= labels
    scores = (np.concatenate([outputs[0] for _, outputs in each.calls]) for each in (got, wanted))
    apart = np.abs(np.subtract(*scores))
    assert np.count_nonzero(apart > WITHIN) <= apart.size / 10_000 and apart.max() <= 3 * WITHIN, apart.max()


class _Running:
    """An object that has nothing but `run`."""

    def __init__(self, run: Recorder) -> None:
        self.run = run


# rapidocr-onnxruntime

PARTS = (("text_det", "infer"), ("text_cls", "infer"), ("text_rec", "session"))
IMAGES = ((0, 1, 2), (1,))
"""The lines of each image. All are of one size: to compile what finds the lines takes ten seconds for each."""


def test_text_is_read_as_onnxruntime_reads_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every output of the three models, on two images, and what is read in the end. The script prints as much of the
    first image, by the reader that has programs for it."""
    import read_text
    from rapidocr_onnxruntime import RapidOCR
    from read_text import LINES, draw, read, reader

    options = {"det_limit_side_len": 160.0}
    ours, peers = reader(**options), RapidOCR(**options)
    recorders = [_recorded(ocr) for ocr in (ours, peers)]
    for written in IMAGES:
        image = draw([line if number in written else "" for number, line in enumerate(LINES)])
        found, expected = read(ours, image), read(peers, image)
        assert [text for text, _ in found] == [text for text, _ in expected]
        assert len(found) == len(written)
    for part, got, wanted in zip(PARTS, *recorders, strict=True):
        assert len({call[0][0].shape for call in got.calls}) == (1 if part[0] == "text_det" else 2)
        for (_, mine), (_, theirs) in zip(got.calls, wanted.calls, strict=True):
            np.testing.assert_allclose(mine[0], theirs[0], rtol=WITHIN, atol=WITHIN)
    monkeypatch.setattr(read_text, "reader", lambda: ours)
    monkeypatch.setattr(sys, "argv", ["read_text.py"])
    read_text.main()
    assert "raphs" in capsys.readouterr().out


def _recorded(ocr: Any) -> list[Recorder]:
    recorders: list[Recorder] = []
    for part, name in PARTS:
        model = getattr(ocr, part)
        recorders.append(Recorder(getattr(model, name)))
        setattr(model, name, recorders[-1])
    return recorders


# The scripts


@pytest.mark.parametrize(
    ("script", "said"), [("detect_speech.py", "frames as spoken"), ("file_types.py", "python")]
)
def test_the_examples_run(script: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / script)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
