"""Attention that cuDNN runs."""
