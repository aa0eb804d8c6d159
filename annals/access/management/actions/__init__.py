"""What the commands do: imported when one does it, not for its help."""
