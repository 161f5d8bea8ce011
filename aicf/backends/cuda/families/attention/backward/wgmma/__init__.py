"""The gradients of attention by warpgroup products on Hopper, in two launches."""
