"""Attention, on tensor cores from Ampere on and without them."""
