"""Products that an optional BLAS runs."""
