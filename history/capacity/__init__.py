"""The disk space that the history needs, now and later."""
