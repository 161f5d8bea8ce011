"""Attention as one instruction."""
