"""Poolings: the largest element or the mean of each window."""
