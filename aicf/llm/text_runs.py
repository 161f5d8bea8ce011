"""The cache of one text: which tokens it holds, and the runs of programs that put more into it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from aicf.compilation.compiled import CompiledModel
from aicf.errors import CaptureError
from aicf.llm.programs import Programs, Sizes, bucket_of
from aicf.llm.sampling import Sampling
from aicf.llm.stats import Pace
from aicf.llm.token_state import COUNT, HISTORY, START, TOKENS
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.state import StatePart

AHEAD = 16
"""Most tokens that a device makes while the host reads those before them."""


class TextRuns:
    """See the module. For one thread and one text at a time.

    Args:
        executable: Its programs, for one token and for `prefill` tokens.
        capacity: Positions that its cache has, or grows to.
        prefill: Tokens that the larger program takes.
        programs: Makes programs for a larger cache; None if it does not grow.
    """

    def __init__(
        self, executable: CompiledModel, capacity: int, prefill: int, programs: Programs | None
    ) -> None:
        self.executable, self.capacity = executable, capacity
        self.known: list[int] = []
        """Tokens that the cache holds."""
        self.reused = 0
        """Tokens of the last prompt that it held already."""
        self.prompt, self.answer = Pace(), Pace()
        self.is_device = executable.native.memory == "device"
        self.held = state_sizes(executable)[HISTORY] - 1
        """Positions that the cache has now."""
        self._prefill, self._programs = prefill, programs
        self._steps: dict[int, GraphExec] = {}
        self._sampling = Sampling()

    def set(self, sampling: Sampling) -> None:
        """How tokens are chosen from now on."""
        self._sampling = sampling
        for step in self._steps.values():
            step.fill(sampling.feeds())

    def read(self, tokens: Sequence[int]) -> GraphExec:
        """Puts tokens into the cache that it does not have; the program that has run last, of the last of them."""
        shared, most = 0, min(len(tokens) - 1, len(self.known))
        while shared < most and tokens[shared] == self.known[shared]:
            shared += 1
        self.known = self.known[:shared]
        self.reused, self.prompt = shared, Pace()
        step = self.step(1)
        for start in range(shared, len(tokens), self._prefill):
            part = tokens[start : start + self._prefill]
            with self.prompt.timed(len(part)):
                step = self.run(part)
        return step

    def run(self, tokens: Sequence[int]) -> GraphExec:
        """Puts at most `prefill` tokens after those that the cache holds."""
        size = 1 if len(tokens) == 1 else self._prefill
        start = len(self.known)
        self.make_room(min(start + size, self.capacity))
        if start + size > self.capacity:  # padding must not run over the end
            for token in tokens[:-1]:
                self.run([token])
            return self.run(tokens[-1:])
        step = self.step(size)
        padded = np.zeros(size, np.int64)
        padded[: len(tokens)] = tokens
        step.fill({TOKENS: padded, START: np.array([start]), COUNT: np.array([len(tokens)])})
        step.replay()
        step.synchronize()
        self.known = [*self.known, *tokens]
        return step

    def chosen(self, count: int = 1) -> list[int]:
        """The tokens after those that the cache holds, which as many runs have chosen."""
        first = len(self.known)
        return self.executable.state(HISTORY)[HISTORY][first : first + count].tolist()

    def following(self, count: int) -> Iterator[int]:
        """At most `count` tokens, of which the last run of `read` has chosen the first. A device makes the next ones
        while the caller uses these."""
        self.answer = Pace()
        made, count, ahead = self.chosen(), count - 1, 1
        while True:
            queued = min(ahead, count)
            if queued and self.is_device:
                self._go_on(queued)
            for token in made:
                yield checked(token)
            if not queued:
                return
            with self.answer.timed(queued):
                if not self.is_device:
                    self._go_on(queued)
                last = made[-1]
                self.known.append(last)
                made = self.chosen(queued)
            self.known += made[:-1]
            count -= queued
            if self.is_device:
                ahead = min(2 * ahead, AHEAD)

    def _go_on(self, runs: int) -> None:
        """Queues runs that go on where the last one stopped."""
        self.make_room(len(self.known) + runs)
        step = self.step(1)
        step.fill({START: np.array([-1]), COUNT: np.array([0])})
        step.replay(runs)

    def make_room(self, positions: int) -> None:
        """Lets the cache have so many positions, at most its capacity: a larger one takes over what it holds."""
        if positions <= self.held:
            return
        assert self._programs is not None and positions <= self.capacity
        before, sizes = self.step(1), state_sizes(self.executable)
        held = min(bucket_of(positions, 2 * self.held), self.capacity)
        executable = self._programs.of(Sizes(held))
        step = self._attached(executable, 1)
        step.take_state(before, [StatePart(name, 0, 0, size) for name, size in sizes.items()])
        step.synchronize()
        former = self.held
        # All at once, last: what fails before leaves the smaller cache in use.
        self.executable, self._steps, self.held = executable, {1: step}, held
        self._programs.drop(Sizes(former))

    def step(self, size: int) -> GraphExec:
        """The program for so many tokens."""
        if size not in self._steps:
            self._steps[size] = self._attached(self.executable, size)
        return self._steps[size]

    def _attached(self, executable: CompiledModel, size: int) -> GraphExec:
        step = executable.attach(T=size)
        step.fill({**self._sampling.feeds(), TOKENS: np.zeros(size, np.int64)})
        return step


def state_sizes(executable: CompiledModel) -> dict[str, int]:
    """Elements of each state that the programs update, by name."""
    sizes = {bind.name: int(np.prod(bind.shape)) for bind in executable.plan.weights}
    return {name: sizes[name] for name in executable.plan.mutable}


def checked(token: int) -> int:
    """A token that a program chose. Raises CaptureError if there was none to choose."""
    if token < 0:
        raise CaptureError("a logit is not a number; check the model's weights")
    return token
