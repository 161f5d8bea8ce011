"""Matrices laid out in panels for the microkernel."""
