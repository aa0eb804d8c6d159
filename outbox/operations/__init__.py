"""What outbox and inbox share: commands for long-running processes, admin pages, and status."""
