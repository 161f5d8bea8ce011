"""Finds speech in sound with the model of the package `silero-vad`, run by AICF.

    python detect_speech.py "  aeioua  oui  "      vowels are spoken, blanks are pauses

The sound is synthesised (`voice.py`), so where speech is in it is known.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from voice import RATE, Sound, speak

import aicf

MODELS = ("silero_vad_op18_ifless.onnx", "silero_vad_16k_op15.onnx")
FRAME, CONTEXT = 512, 64
"""Samples that the model judges at once, and those before them that it sees too."""
SPEECH = 0.5


def main() -> int:
    """Prints who is right about each tenth of a second; 1 if the model finds something else than was spoken."""
    text = sys.argv[1] if len(sys.argv) > 1 else "  aeioua  oui aea  "
    sound, voiced = speak(text)
    session = open_session(model_path(MODELS[0]))
    found = np.array([probability for probability, _ in judge(session, sound)]) > SPEECH
    spoken = voiced[: len(found) * FRAME].reshape(-1, FRAME).mean(1) > SPEECH
    for name, row in (("spoken", spoken), ("found", found)):
        print(f"{name:>6} {''.join('#' if frame else '.' for frame in row)}")
    agree = float((found == spoken).mean())
    print(f"{len(sound) / RATE:.1f} s of sound, {agree:.0%} of {len(found)} frames as spoken")
    return 0 if agree > 0.9 else 1


def model_path(name: str) -> Path:
    """A model of the package, which need not be imported for it."""
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "the package silero-vad is missing: pip install -e '.[onnx,examples]' in the repository"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / name


def open_session(path: Path) -> aicf.InferenceSession:
    """A session for one sound at 16,000 samples a second. The model chooses by its input `sr`, which is fixed."""
    return aicf.InferenceSession(path, dims={"batch": 1, "sequence": CONTEXT + FRAME}, values={"sr": RATE})


def frames(sound: Sound) -> Iterator[np.ndarray]:
    """`[1, 576]`: each frame after the end of the one before."""
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    for start in range(0, len(sound) - FRAME + 1, FRAME):
        yield padded[None, start : start + CONTEXT + FRAME]


def judge(session: aicf.InferenceSession, sound: Sound) -> Iterator[tuple[float, np.ndarray]]:
    """The probability of speech in each frame, and the model's state after it."""
    state = np.zeros((2, 1, 128), np.float32)
    for frame in frames(sound):
        found = session.run({"input": frame, "state": state})
        state = found["stateN"]
        yield float(found["output"][0, 0]), state


if __name__ == "__main__":
    sys.exit(main())
