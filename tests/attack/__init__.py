"""Attacks on the availability of the production web server: `python -m tests.attack`."""
