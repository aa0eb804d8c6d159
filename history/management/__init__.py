"""Helpers for the commands of all apps: files to load, progress, numbers and days as arguments."""
