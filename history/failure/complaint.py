"""What errors for people have in common."""

from __future__ import annotations


class Complaint(Exception):
    """An error whose text is for people: what is wrong, where, and what to do. One line, without
    a password."""
