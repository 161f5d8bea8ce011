"""Rewrites of what the target has no kernel for; `lower-logical` for composite ops."""
