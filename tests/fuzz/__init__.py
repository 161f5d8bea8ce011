"""Fuzzers: tools that damage what AICF reads, by seed, and say what came of each trial."""
