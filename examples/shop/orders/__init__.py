"""Products, and orders of them."""
