"""The template tags of the app access."""
