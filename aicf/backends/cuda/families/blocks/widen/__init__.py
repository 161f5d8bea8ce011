"""Rows of blocks as f32."""
