"""Products on Hopper: bulk copies and warpgroup products; `gemm/norm` puts a row program after them."""
