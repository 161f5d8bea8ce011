"""Which element of each window is the largest."""
