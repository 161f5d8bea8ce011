"""Passes over logical IR: ids, policy, target, canonical forms, constants, symbolic sizes."""
