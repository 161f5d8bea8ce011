"""Rewrites of ops and operand types that the target has no kernel for; `lower-logical` for composite ops."""
