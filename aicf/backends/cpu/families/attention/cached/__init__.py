"""Attention over keys and values that are a cache, as far as it is filled."""
