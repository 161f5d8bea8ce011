"""The table of the GPU tests, a module for each family of kernels."""
