"""Versions that never arrived: found day by day, kept, closed when they come late."""
