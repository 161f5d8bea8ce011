"""Comparisons: one model through several engines, in time, error and memory; two compiled programs by decisions."""
