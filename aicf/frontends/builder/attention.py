"""Attention of the builder."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.frontends.builder.core import GraphCore, Value


class AttentionOps(GraphCore):
    """One method an op."""

    def attention(
        self,
        query: Value,
        key: Value,
        value: Value,
        mask: Value | None = None,
        *,
        scale: float | None = None,
        causal: bool = False,
        past: int = 0,
        name: str | None = None,
    ) -> Value:
        """``softmax(q @ k.T * scale + mask) @ v`` of ``[batch..., heads, tokens, size]``; keys may have fewer heads.

        An i1 mask says which keys are seen; ``causal`` hides the keys after query i + ``past``.
        """
        q, k, v = (self._own(item) for item in (query, key, value))
        own_mask = None if mask is None else self._own(mask)
        return self._insert(
            "attention",
            name,
            lambda: logical.AttentionOp(q, k, v, own_mask, scale=scale, causal=causal, past=past),
        )
