"""The indices of the largest elements."""
