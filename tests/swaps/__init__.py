"""Packs and unpacks days while threads read and write them: `python -m tests.swaps --swaps 200`.

A swap replaces the table of a day by a table with packed or unpacked rows.
"""
