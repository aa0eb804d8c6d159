"""Blocks: rows that have up to 64 versions of one document and day, compressed together."""
