"""The commands that need both `history` and `ingest`, and helpers of theirs."""
