"""Expansions of ops, and of operand types, that no kernel of the target takes."""
