"""The gradients of the weights of convolutions: products whose K is all pixels, shared by many blocks."""
