"""The products of the shop, and the orders for them."""
