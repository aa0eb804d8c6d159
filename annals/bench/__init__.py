"""The benchmarks of `manage.py bench`."""
