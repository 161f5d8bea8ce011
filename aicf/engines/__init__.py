"""Engines: what runs a whole model, AICF's own or another's, with one contract for all of them."""
