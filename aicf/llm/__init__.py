"""Language models: from a GGUF file or a Hugging Face folder to tokens.

lm = aicf.llm.load("model.gguf")
for piece in lm.generate("Once upon a time"): print(piece, end="")
"""

from __future__ import annotations

from aicf.llm.batch_runs import Text
from aicf.llm.chat import Chat
from aicf.llm.loading import load
from aicf.llm.model import LanguageModel
from aicf.llm.perplexity import perplexity
from aicf.llm.quantizing.quantize import quantize
from aicf.llm.sampling import Sampling
from aicf.llm.sentences import SentenceEncoder, load_encoder
from aicf.llm.stats import Stats

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
