"""`scripts/demo`: starts everything on one machine, and verifies it with `--check`."""
