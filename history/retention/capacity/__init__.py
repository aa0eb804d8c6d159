"""The disk space that the history needs."""
