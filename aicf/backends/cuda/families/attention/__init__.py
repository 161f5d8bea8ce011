"""Attention: on tensor cores from Ampere on, on Hopper, without tensor cores, and of one new token."""
