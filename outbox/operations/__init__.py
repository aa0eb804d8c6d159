"""Shared by the processes of outbox and inbox: commands that run long, and their status."""
