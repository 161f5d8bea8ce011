"""From a model and options to a compiled one, to its file and back."""
