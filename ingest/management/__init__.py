"""Helpers for the commands about messages."""
