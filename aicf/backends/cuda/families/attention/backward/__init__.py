"""The gradients of attention for queries, keys and values."""
