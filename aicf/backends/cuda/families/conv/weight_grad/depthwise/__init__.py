"""Gradients of the weights of convolutions with one input channel a group, out of registers."""
