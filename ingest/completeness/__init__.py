"""Reads the ledger: counts, faults, expected losses, and the days that must not be dropped yet."""
