"""Writes one batch into PostgreSQL in one transaction: rows, bad messages and the ledger.

Begin with transaction.py. It takes fast_path.py, and slow_path.py after a conflict.
"""
