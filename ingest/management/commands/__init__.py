"""The consumer, and the commands about messages."""
