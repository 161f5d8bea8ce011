"""What the kernels that are a call of a library have in common."""
