"""The support screens in Django's admin: search, timelines, snapshots, comparisons."""
