"""Convolutions by warpgroup products out of bulk tensor copies."""
