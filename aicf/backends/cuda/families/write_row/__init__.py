"""Rows that are written into a state."""
