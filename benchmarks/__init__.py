"""Benchmarks of Annals. Most also measure a baseline, such as bare SQL. Not part of the wheel."""
