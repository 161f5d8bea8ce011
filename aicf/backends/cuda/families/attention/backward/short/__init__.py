"""The gradients of attention over short sequences on Hopper, in one launch: a block has a whole head."""
