"""The JSON of snapshots: reads and writes it exactly, prepares it for JSONB, finds values in it."""
