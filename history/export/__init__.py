"""Handing whole days on to a data warehouse, as files or as one stream."""
