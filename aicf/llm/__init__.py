"""Language models: from a GGUF file or a Hugging Face folder to tokens.

lm = aicf.llm.load("model.gguf")
for piece in lm.generate("Once upon a time"): print(piece, end="")

What text does not need is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aicf.llm.batch_runs import Text
from aicf.llm.chat import Chat
from aicf.llm.loading import load
from aicf.llm.model import LanguageModel
from aicf.llm.perplexity import perplexity
from aicf.llm.sampling import Sampling
from aicf.llm.stats import Stats

if TYPE_CHECKING:
    from aicf.llm.quantizing.quantize import quantize
    from aicf.llm.sentences import SentenceEncoder, load_encoder

__all__ = [
    "Chat",
    "LanguageModel",
    "Sampling",
    "SentenceEncoder",
    "Stats",
    "Text",
    "load",
    "load_encoder",
    "perplexity",
    "quantize",
]

_HOMES = {
    "SentenceEncoder": "aicf.llm.sentences",
    "load_encoder": "aicf.llm.sentences",
    "quantize": "aicf.llm.quantizing.quantize",
}
"""Where each lazy name lives."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'aicf.llm' has no attribute '{name}'")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
