"""What an engine raises, as an error of AICF that says whose it is."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from aicf.errors import AicfError, EngineError


@contextmanager
def engine_errors(engine: str, doing: str) -> Generator[None]:
    """Turns what an engine raises into EngineError; `doing` says when, as in `runs the model`."""
    try:
        yield
    except AicfError:
        raise
    except Exception as error:
        words = str(error) or type(error).__name__
        raise EngineError(
            f"engine '{engine}' failed while it {doing}: {words}; correct what it names, or use engine='aicf'"
        ) from error
