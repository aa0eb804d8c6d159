"""How the outbox uses PostgreSQL: connections of its processes, and a table for each day."""
