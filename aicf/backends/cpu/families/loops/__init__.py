"""Generated kernels: pointwise loops, reductions and scans."""
