"""Packs and unpacks days under readers and writers: `python -m tests.swaps --swaps 200`.

A swap replaces the table of a day by a table with packed or unpacked rows.
"""
