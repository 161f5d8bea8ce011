"""The dialects: operations, types, attributes and their verifiers."""
