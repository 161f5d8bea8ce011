"""Which update of a row is the last."""
