"""Writes one batch into PostgreSQL in one transaction."""
