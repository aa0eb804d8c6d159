"""Errors that end a command, each in one sentence: what is wrong, where, and what to do."""
