"""Convolutions that cuDNN runs."""
