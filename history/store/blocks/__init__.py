"""Packed versions: up to 64 of one document on one day in one row, with compressed snapshots."""
