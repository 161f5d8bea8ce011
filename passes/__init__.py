"""The passes of the compiler: each lowers a program, decides something about it, or checks it."""
