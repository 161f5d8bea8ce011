"""A product and the row program after it as one instruction."""
