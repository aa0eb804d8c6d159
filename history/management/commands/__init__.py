"""The commands that only need history."""
