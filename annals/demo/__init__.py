"""The demo (`scripts/demo`) runs all of Annals on one machine; with `--check` it verifies it."""
