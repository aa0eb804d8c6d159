"""Checks of arguments and preconditions for the commands about messages."""
