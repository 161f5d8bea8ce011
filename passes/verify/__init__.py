"""Passes that change nothing and refuse programs that break a rule."""
