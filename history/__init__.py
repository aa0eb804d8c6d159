"""The tables of versions, and everything that reads them."""
