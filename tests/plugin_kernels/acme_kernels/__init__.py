"""Ops and kernels of a package: importing it defines them, which the entry point does."""

from acme_kernels import clip_rows, rms_norm

__all__ = ["clip_rows", "rms_norm"]
