"""Passes that join ops into groups, each of which one kernel runs."""
