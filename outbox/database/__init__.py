"""PostgreSQL below the outbox: connections of its processes, and a table for each day."""
