"""`train_step`: a module of PyTorch, its loss, their gradients and an optimizer as one program."""
