"""Kernels of users on processors."""
