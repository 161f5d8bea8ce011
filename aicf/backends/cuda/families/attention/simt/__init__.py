"""Attention in plain f32 arithmetic, for any strides and without tensor cores."""
