"""Products on Hopper: bulk copies and warpgroup products, with a row program after them."""
