"""Connects history and ingest: settings, URLs, the web server, generated documentation."""
