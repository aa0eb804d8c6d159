"""The commands that need only the app history."""
