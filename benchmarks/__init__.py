"""Benchmarks, next to a reference of the same run; for a clone, not in the wheel."""
