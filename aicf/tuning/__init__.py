"""`aicf tune`: measuring the kernels that could run a program, on the device it is for.

`candidates` makes a one-instruction program of everything that could run, which needs no device; `cases` is what that
gives, and the folder that holds it; `measure` times cases on a `Device` (`host_device`, `cuda_device`) and makes the
table that `select-kernels` reads, which needs no compiler.
"""
