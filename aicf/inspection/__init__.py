"""Compiled programs looked at: what was decided and why, what differs, what it costs, what ran when."""
