"""The support screens: search, timelines, snapshots and comparisons inside Django's admin."""

# Django imports this package to find what the admin shows.
from history.admin import catalogues

__all__ = ["catalogues"]
