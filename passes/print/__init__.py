"""Passes that show an analysis and change nothing else."""
