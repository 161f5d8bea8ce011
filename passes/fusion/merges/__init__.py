"""Passes that merge groups that are formed already, and move a cast from one into others."""
