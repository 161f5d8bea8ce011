"""The kernels of the CUDA backend, a folder for each family. Only modules of code generation load a code generator."""
