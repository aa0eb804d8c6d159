"""The actions of the commands: imported when a command runs, not for its help."""
