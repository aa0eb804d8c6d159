"""The partitions of the *_aud tables: what exists, what should, and making it so."""
