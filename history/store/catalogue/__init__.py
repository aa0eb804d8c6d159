"""Readable names: the full names of logins, and the labels of fields."""
