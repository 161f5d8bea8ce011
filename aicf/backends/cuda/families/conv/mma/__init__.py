"""Convolutions of any strides by tensor cores, without windows in memory."""
