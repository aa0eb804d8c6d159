"""The sources of versions: the tables with their SQL, the old service, the archive, and a merge."""
