"""Gradients of weights by tensor cores, of operands of any strides."""
