"""The command of the inbox."""
