"""Backup and restore to a moment, on real servers under ingest: `python -m tests.drill`."""
