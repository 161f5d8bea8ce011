"""How well a model predicts a text."""

from __future__ import annotations

import math

import numpy as np

from aicf.errors import InputMismatch
from aicf.llm.model import LanguageModel
from aicf.runtime.tensors import Array
from aicf.support.whole_numbers import is_whole


def perplexity(model: LanguageModel, text: str, *, window: int | None = None) -> float:
    """The perplexity of a text: e to the mean negative log-likelihood of each token given those before it.

    Args:
        model: That predicts.
        text: Of two tokens or more.
        window: Tokens that are predicted from one another; a longer text is cut into such parts, and the first token of
            each is not predicted. What the cache holds if None.

    Raises:
        InputMismatch: the text is too short, or the window is no number of tokens that the cache holds.
    """
    size = model.capacity if window is None else window
    if not is_whole(size, least=2) or size > model.capacity:
        raise InputMismatch(f"window is {window}; the cache holds 2 to {model.capacity:,} tokens")
    tokens = model.tokenizer.encode(text)
    parts = [tokens[start : start + size] for start in range(0, len(tokens), size)]
    losses = [_loss(model.logits(part[:end]), part[end]) for part in parts for end in range(1, len(part))]
    if not losses:
        raise InputMismatch(f"the text has {len(tokens)} tokens; give two or more")
    return math.exp(math.fsum(losses) / len(losses))


def _loss(logits: Array, token: int) -> float:
    """The negative log-likelihood of a token."""
    exact = logits.astype(np.float64)
    top = float(exact.max())
    return top + math.log(float(np.exp(exact - top).sum())) - float(exact[token])
