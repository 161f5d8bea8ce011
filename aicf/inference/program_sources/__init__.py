"""Where a session gets programs: one compiled model, or a model compiled shape by shape."""
