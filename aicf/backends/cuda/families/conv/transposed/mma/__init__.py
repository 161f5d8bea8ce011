"""Transposed convolutions of any strides by tensor cores, a launch for each phase."""
