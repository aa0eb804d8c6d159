"""The admin site: addresses, permissions, and the lists of people and labels."""
