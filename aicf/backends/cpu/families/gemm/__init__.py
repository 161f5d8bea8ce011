"""Matrix products over packed panels, with epilogues, and with row programs before or after them."""
