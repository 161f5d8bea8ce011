"""The contract of a backend, the registry of backends, and the backends themselves."""
