"""The backend for x86-64 processors: one native function for each program."""
