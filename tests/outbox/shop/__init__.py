"""The service of the tests: orders and their items."""
