"""The days of a table: their window, partitions and locks, how rows are stored and digested."""
