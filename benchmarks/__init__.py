"""Benchmarks that measure Annals next to a reference in the same run. Not part of the wheel."""
