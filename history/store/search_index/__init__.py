"""The table search_key: business keys by which documents are found, and how it is filled."""
