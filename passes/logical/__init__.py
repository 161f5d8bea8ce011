"""Passes over logical IR: ids, policy, constants, symbolic sizes."""
