"""Policies and tuning tables: what a compile is asked to do, as data."""
