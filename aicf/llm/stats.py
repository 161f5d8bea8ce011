"""What a generation took: tokens a second of the prompt and of the answer, and memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter


@dataclass
class Pace:
    """Tokens, and the seconds that the programs took for them; what the caller does in between does not count."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """Tokens a second; 0 if there were none."""
        return self.tokens / self.seconds if self.tokens and self.seconds else 0.0

    def add(self, other: Pace) -> None:
        """Adds what another one counts."""
        self.tokens += other.tokens
        self.seconds += other.seconds

    @contextmanager
    def timed(self, tokens: int) -> Generator[None]:
        """Adds tokens, and the time of what is done inside, once it is done."""
        start = perf_counter()
        yield
        self.seconds += perf_counter() - start
        self.tokens += tokens

    def __str__(self) -> str:
        noun = "token" if self.tokens == 1 else "tokens"
        return f"{self.tokens:,} {noun} in {self.seconds:.2f} s ({self.per_second:,.1f} a second)"


@dataclass
class Stats:
    """The last generation, and the memory of the model.

    Args:
        prompt: Tokens of the prompt that were computed.
        reused: Tokens of the prompt that the cache had already.
        answer: Tokens that were made after the first, which the prompt's last run makes.
        weight_bytes: Of the weights, as the programs read them.
        cache_bytes: Of keys, values and tokens.
        work_bytes: Of intermediate values, inputs and outputs.
    """

    prompt: Pace
    reused: int
    answer: Pace
    weight_bytes: int
    cache_bytes: int
    work_bytes: int

    def __str__(self) -> str:
        sizes = (self.weight_bytes, self.cache_bytes, self.work_bytes)
        weights, cache, work = (f"{size / 1e6:,.1f} MB" for size in sizes)
        return (
            f"prompt: {self.prompt}, {self.reused:,} reused\n"
            f"answer: {self.answer}\n"
            f"memory: weights {weights}, cache {cache}, work {work}"
        )
