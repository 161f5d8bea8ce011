"""Compiled programs looked at: what was decided and why, what it costs, what ran when."""
