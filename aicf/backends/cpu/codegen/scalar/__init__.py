"""Code for the scalar ops of generated kernels."""
