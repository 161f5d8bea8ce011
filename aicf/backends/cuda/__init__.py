"""The backend for NVIDIA GPUs: one CUDA Graph for each program."""
