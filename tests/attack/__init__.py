"""Attacks on the availability of the web, run against the real server: `python -m tests.attack`."""
