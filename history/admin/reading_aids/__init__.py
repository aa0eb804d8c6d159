"""Aids for daily work with histories: recent documents, pictures, files, dates in words."""
