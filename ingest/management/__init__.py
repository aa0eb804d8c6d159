"""The commands about messages, and checks before they run."""
