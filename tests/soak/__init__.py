"""Everything at once for an hour: load, days that pass, faults; then every version is counted."""
