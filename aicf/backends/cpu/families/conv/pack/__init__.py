"""Weights of convolutions in panels of quads."""
