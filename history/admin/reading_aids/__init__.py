"""Helps for the daily work of support: recent documents, pictures of days, files, dates in words."""
