"""The Django app of the test service, with orders and their items."""
