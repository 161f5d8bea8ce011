"""Kernels of users on GPUs."""
