"""The example shop: settings and addresses."""
