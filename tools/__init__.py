"""The command-line tools, and what generates the reference pages."""
