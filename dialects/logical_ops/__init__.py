"""The ops of the logical dialect by family; import them from ``aicf.dialects.logical``."""
