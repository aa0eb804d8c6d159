"""Where versions are read: the tables and their SQL, the old service, the archive; and merged."""
