"""Scatters that sort their indices first."""
