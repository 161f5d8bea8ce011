"""Passes that join ops into groups, one kernel each."""
