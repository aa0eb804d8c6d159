"""Writes one batch into PostgreSQL in one transaction: rows, bad messages and the ledger.

Begin with transaction.py. It stores rows by fast_path.py, or by slow_path.py if that fails.
"""
