"""Transposed convolutions, as what a convolution of stride 2 passes back to its operand."""
