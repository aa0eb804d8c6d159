"""The commands that need both `history` and `ingest`, and their helpers."""
