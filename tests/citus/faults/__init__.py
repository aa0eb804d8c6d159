"""Faults of a Citus cluster under load. Run it with `python -m tests.citus.faults`."""
