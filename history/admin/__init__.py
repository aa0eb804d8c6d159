"""The support screens: search, timelines, snapshots and comparisons inside Django's admin."""
