"""What the commands about messages share."""
