"""Rows of blocks as f32 numbers."""
