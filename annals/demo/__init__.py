"""The demo (`scripts/demo`) runs all of Annals on one machine. `--check` verifies all results."""
