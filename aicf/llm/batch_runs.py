"""Several texts at once: static batches, whose sequences make a token each in every run.

Prompts are read one after another into the cache of one text, so that one that begins as the prompt before it computes
only the rest; their rows are then copied to their places in the cache of the batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from aicf.compilation.compiled import CompiledModel
from aicf.llm.batch_state import LIMIT
from aicf.llm.programs import Programs, batch_sizes
from aicf.llm.sampling import Sampling
from aicf.llm.stats import Pace
from aicf.llm.text_runs import AHEAD, TextRuns, checked, state_sizes
from aicf.llm.token_state import HISTORY, LENGTH
from aicf.runtime.state import StatePart
from aicf.runtime.tensors import Array


@dataclass(eq=False)
class Text:
    """One text of a batch.

    Args:
        prompt: Tokens.
        most: Tokens that are made at most.
        sampling: How they are chosen.
        is_over: Whether no more are wanted; whoever reads the tokens may say so.
    """

    prompt: Sequence[int]
    most: int
    sampling: Sampling
    is_over: bool = False


class BatchRuns:
    """The cache of a batch, and the runs that add a token to each of its sequences.

    Args:
        executable: Its program.
        sequences: That this takes, at least as many as there are texts.
    """

    def __init__(self, executable: CompiledModel, sequences: int) -> None:
        self._executable, self._step = executable, executable.attach(T=sequences)
        self._sizes = {name: size // sequences for name, size in state_sizes(executable).items()}
        self._feeds = {name: np.repeat(feed, sequences) for name, feed in Sampling().feeds().items()}
        self._limits = np.zeros(sequences, np.int64)
        self._texts: dict[int, Text] = {}
        self._lengths = np.zeros(sequences, np.int64)
        self._queued, self._ahead = 0, 1

    @property
    def is_device(self) -> bool:
        """Whether runs are queued while the caller uses the tokens of those before."""
        return self._executable.native.memory == "device"

    def put(self, slot: int, text: Text, runs: TextRuns) -> None:
        """Takes over a text whose prompt was read, with the token that follows it."""
        length = len(runs.known)
        parts: list[StatePart] = []
        for name, size in state_sizes(runs.executable).items():
            # Rows of positions: those of the prompt, and of the history one more.
            rows = {LENGTH: 1, HISTORY: length + 1}.get(name, length * (size // runs.held))
            parts.append(StatePart(name, 0, slot * self._sizes[name], rows))
        self._step.take_state(runs.step(1), parts)
        for name, value in text.sampling.feeds().items():
            self._feeds[name][slot] = value[0]
        self._texts[slot], self._lengths[slot] = text, length
        self._limits[slot] = length + text.most - 1
        self._step.fill(self._feeds)

    def tokens(self, pace: Pace) -> Iterator[tuple[Text, int]]:
        """The tokens of all texts, in the order of runs. A device makes the next ones while the caller uses these.

        Args:
            pace: Counts them.
        """
        self._queue()
        while self._queued:
            with pace.timed(0):
                made = self._made()
            pace.tokens += sum(map(len, made.values()))
            if self.is_device:
                self._queue()
            for run in range(max(map(len, made.values()))):
                for slot, tokens in made.items():
                    if run < len(tokens) and not self._texts[slot].is_over:
                        yield self._texts[slot], checked(tokens[run])
            if not self.is_device:
                with pace.timed(0):
                    self._queue()

    def _queue(self) -> None:
        """Queues runs: as many as a text lacks, but no more than the host should wait for."""
        for slot, text in self._texts.items():
            if text.is_over:
                self._limits[slot] = 0
        lacking = int(np.max(self._limits - self._lengths, initial=0))
        self._queued = min(self._ahead, lacking)
        if self._queued:
            self._step.fill({LIMIT: self._limits})
            self._step.replay(self._queued)
        if self.is_device:
            self._ahead = min(2 * self._ahead, AHEAD)

    def _made(self) -> dict[int, list[int]]:
        """The tokens that the queued runs have made, by slot."""
        history: Array = self._executable.state(HISTORY)[HISTORY]
        found: dict[int, list[int]] = {}
        for slot in self._texts:
            first = int(self._lengths[slot])
            count = max(min(self._queued, int(self._limits[slot]) - first), 0)
            self._lengths[slot] += count
            if count:
                found[slot] = history[slot, first + 1 : first + 1 + count].tolist()
        return found


def batch_tokens(
    texts: Sequence[Text], runs: TextRuns, programs: Programs, ends: Container[int]
) -> Iterator[tuple[Text, int]]:
    """The tokens of one batch; those that end a text are not among them.

    Args:
        texts: Of the batch.
        runs: The cache of one text, where prompts are read.
        programs: Makes the program of the batch.
        ends: Tokens that end a text.
    """
    answer, prompt, reused = Pace(), Pace(), 0
    batch: BatchRuns | None = None
    for slot, text in enumerate(texts):
        runs.set(text.sampling)
        runs.read(text.prompt).synchronize()
        prompt.add(runs.prompt)
        reused += runs.reused
        (token,) = runs.chosen()
        text.is_over = checked(token) in ends
        if not text.is_over:
            yield text, token
        if not text.is_over and text.most > 1:
            if batch is None:
                batch = _batch_for(texts, runs, programs)
            batch.put(slot, text, runs)
    runs.prompt, runs.answer, runs.reused = prompt, answer, reused
    for text, token in batch.tokens(answer) if batch is not None else ():
        text.is_over = token in ends
        if not text.is_over:
            yield text, token


def _batch_for(texts: Sequence[Text], runs: TextRuns, programs: Programs) -> BatchRuns:
    positions = max(len(text.prompt) + text.most for text in texts)
    sizes = batch_sizes(len(texts), positions, runs.capacity)
    return BatchRuns(programs.of(sizes), sizes.sequences)
