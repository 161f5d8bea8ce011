"""Matrix products: what all their families share."""
