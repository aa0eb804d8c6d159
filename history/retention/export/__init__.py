"""Exports of whole days for a data warehouse, as files or as one stream."""
