"""Comparisons: a model through several engines, and two compiled programs by their decisions."""
