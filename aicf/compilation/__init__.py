"""From a model and options to a compiled one: sources, the passes of the pipeline, and the code generator."""
