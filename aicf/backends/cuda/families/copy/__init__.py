"""Copies and concatenations."""
