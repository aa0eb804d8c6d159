"""Template tags of the log-in pages."""
