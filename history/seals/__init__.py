"""Seals: proof that a finished day is still what it was, and that none is missing from the row."""
