"""The archive: the days that left the database, as Parquet files.

Begin with write.py, which archives a day. archive_check.py checks the files, read.py reads single
documents, and restore.py brings a day back into the database.
"""
