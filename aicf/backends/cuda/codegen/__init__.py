"""Text of device code that all families share."""
