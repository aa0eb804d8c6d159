"""Connects history and ingest: settings, URLs, the web server, generated documentation."""

__version__ = "0.2.0.dev0"
