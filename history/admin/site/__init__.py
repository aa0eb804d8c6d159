"""The admin site: addresses, permissions, language."""
