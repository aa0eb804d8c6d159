"""The commands that need both history and ingest."""
