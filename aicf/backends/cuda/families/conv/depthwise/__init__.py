"""Convolutions with one input channel a group, out of registers."""
