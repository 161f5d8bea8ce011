"""A backend for AICF that is no part of it: kernels that run on NumPy arrays, described and registered as any other."""
