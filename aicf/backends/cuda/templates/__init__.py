"""Kernel templates: Python functions that `staging` specialises. Imported only where code is generated."""
