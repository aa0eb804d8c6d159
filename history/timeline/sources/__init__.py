"""Where versions are read: the tables with their SQL, the old service, the archive; and merged."""
