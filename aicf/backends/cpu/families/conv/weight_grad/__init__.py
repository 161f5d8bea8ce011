"""The gradients of weights, as convolutions whose batch and channels have changed places."""
