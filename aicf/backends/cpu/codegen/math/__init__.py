"""Functions of floats as vector code, within 4 ulp, without calls into a library."""
