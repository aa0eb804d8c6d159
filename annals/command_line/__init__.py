"""The command `annals`: what it answers at once, and how wrong words are refused."""
