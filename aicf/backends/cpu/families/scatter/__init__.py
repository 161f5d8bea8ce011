"""Writes at computed indices."""
