"""Non-maximum suppression: the best of boxes that overlap."""
