"""The driver, the captured graph and the stored module. Imports no compiler."""
