"""Checks of arguments and preconditions before a command about messages runs."""
