"""Attention of one query a head, as in a step of a decoder."""
