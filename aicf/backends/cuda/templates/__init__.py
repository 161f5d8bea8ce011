"""Device functions as readable Python, specialised by `staging` before Numba sees them. One module a kernel family."""
