"""Products that cublasLt runs."""
