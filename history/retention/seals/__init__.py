"""Seals prove that the rows of a finished day have not changed and that no seal was removed.

Begin with seal.py, which seals days. verification.py compares sealed days with their seals.
"""
