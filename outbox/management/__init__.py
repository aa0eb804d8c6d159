"""The command of the outbox."""
