"""Sound that a voice detector takes for a voice: vowels by formant synthesis, with pauses and a little noise.

A train of glottal pulses at a falling pitch goes through resonators at the formants of each vowel, as in D. H. Klatt,
"Software for a cascade/parallel formant synthesizer", 1980; syllables fade in and out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RATE = 16000
Sound = NDArray[np.float32]

FORMANTS = {
    "a": ((730, 90), (1090, 110), (2440, 120)),
    "e": ((530, 60), (1840, 100), (2480, 120)),
    "i": ((270, 60), (2290, 100), (3010, 120)),
    "o": ((570, 80), (840, 100), (2410, 120)),
    "u": ((300, 60), (870, 100), (2240, 120)),
}
"""Frequency and bandwidth in Hz of the first three formants of a vowel."""
SYLLABLE_SECONDS = 0.22


def speak(text: str, seed: int = 0) -> tuple[Sound, NDArray[np.bool_]]:
    """The sound of `text`, in which letters are vowels and a blank is a pause, and where in it somebody speaks.

    Both have one element a sample, 16,000 a second; the loudest sample is 0.5.
    """
    rng = np.random.default_rng(seed)
    parts = [_syllable(letter, rng) if letter in FORMANTS else _silence() for letter in text]
    voiced = np.concatenate([np.full(len(part), part.any()) for part in parts])
    sound = np.concatenate(parts)
    sound *= 0.5 / np.abs(sound).max()
    return (sound + 1e-3 * rng.standard_normal(len(sound))).astype(np.float32), voiced


def _syllable(letter: str, rng: np.random.Generator) -> NDArray[np.float64]:
    count = int(SYLLABLE_SECONDS * RATE)
    time = np.arange(count) / RATE
    pitch = 140 - 20 * time / SYLLABLE_SECONDS + rng.uniform(-8, 8)
    phase = np.cumsum(pitch) / RATE
    pulses = np.diff(np.floor(phase), prepend=0.0) + 0.01 * rng.standard_normal(count)
    sound = pulses
    for frequency, bandwidth in FORMANTS[letter]:
        sound = _resonate(sound, frequency, bandwidth)
    return sound * np.sin(np.pi * time / SYLLABLE_SECONDS) ** 0.5


def _resonate(sound: NDArray[np.float64], frequency: float, bandwidth: float) -> NDArray[np.float64]:
    """A resonator of two poles, by its impulse response: a damped sine."""
    time = np.arange(len(sound)) / RATE
    response = np.exp(-np.pi * bandwidth * time) * np.sin(2 * np.pi * frequency * time)
    size = 2 * len(sound)
    spectrum = np.fft.rfft(sound, size) * np.fft.rfft(response, size)
    return np.fft.irfft(spectrum, size)[: len(sound)]


def _silence() -> NDArray[np.float64]:
    return np.zeros(int(2 * SYLLABLE_SECONDS * RATE))
