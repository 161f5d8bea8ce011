"""Loading native code, and the optional BLAS. Imports no compiler."""
