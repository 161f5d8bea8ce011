"""Language models: from a GGUF file to tokens.

lm = aicf.llm.load("model.gguf")
for piece in lm.generate("Once upon a time"): print(piece, end="")
"""

from __future__ import annotations

from aicf.llm.loading import load
from aicf.llm.model import LanguageModel

__all__ = ["LanguageModel", "load"]
