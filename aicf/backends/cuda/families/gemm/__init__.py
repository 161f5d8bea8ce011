"""Matrix products: a folder for each method, and what the methods share."""
