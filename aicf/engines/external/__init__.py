"""What engines outside of AICF share: how a model is read, plans by sizes, sessions, bindings, the folder of plans."""
