"""Used by the commands of all apps: files to load, progress, sizes and numbers as arguments."""
