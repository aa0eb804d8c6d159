"""Shared by all folders: the clock, deadlines, errors as sentences, tables, HTTP calls."""
