"""Rows that are written into a state at an index that is computed."""
