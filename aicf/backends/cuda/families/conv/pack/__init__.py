"""Weights of convolutions, packed ahead."""
