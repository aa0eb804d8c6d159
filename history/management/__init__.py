"""Helpers for the commands of all apps: to load files, show progress, and parse arguments."""
