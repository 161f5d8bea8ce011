"""Convolutions on NVIDIA GPUs."""
