"""What engines outside of AICF share: reading a model, plans by sizes, sessions, bindings."""
