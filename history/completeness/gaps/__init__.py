"""Finds versions that never arrived, day by day, and keeps them as gaps until they arrive."""
