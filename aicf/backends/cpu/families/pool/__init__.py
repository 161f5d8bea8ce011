"""Poolings."""
