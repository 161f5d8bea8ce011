"""`aicf tune`: measuring the kernels that could run a program, on the device it is for.

`plan` lists what could run, and makes a one-instruction program of each, which needs no device; `cases` is what that
gives, and the folder that holds it; `measure` times cases on a `Device` (`host_device`, `cuda_device`) and fills the
table that `select-kernels` reads, which needs no compiler. `tune` does both.
"""
