"""The kernels of the CPU backend, a folder for each family. Only modules of code generation load a code generator."""
