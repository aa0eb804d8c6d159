"""Seals prove that the rows of a finished day have not changed and that no seal was removed."""
