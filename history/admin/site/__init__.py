"""The admin site: addresses, permissions, the lists of people and labels."""
