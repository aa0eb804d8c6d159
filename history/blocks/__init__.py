"""Packed versions: those of one document on one day, in one row, their documents compressed."""
