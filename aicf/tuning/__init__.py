"""`aicf tune`: measuring the kernels that could run a program, on the device it is for.

`cases` makes a one-instruction program of every candidate, which needs no device; `prepared` keeps them in a folder;
`measure` times them on a `Device` (`host_device`, `cuda_device`) and makes the table that `select-kernels` reads.
"""
