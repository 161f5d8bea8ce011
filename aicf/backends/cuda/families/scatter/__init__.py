"""Writes at computed indices, and the indices of the largest elements."""
