"""Convolutions of any strides without tensor cores."""
