"""What the processes of outbox and inbox share: commands that run long, and their status."""
