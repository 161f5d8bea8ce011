"""Transposed convolutions on Hopper, all phases in one launch."""
