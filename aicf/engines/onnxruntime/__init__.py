"""ONNX Runtime as an engine: its own kernels on the CPU, its provider for CUDA on a GPU."""
