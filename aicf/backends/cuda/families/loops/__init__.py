"""Generated kernels: pointwise loops, reductions, scans and copies."""
