"""Exports of whole days for a data warehouse, as files or as one stream.

Begin with run.py. days.py chooses the days, formats.py writes the rows.
"""
