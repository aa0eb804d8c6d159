"""What the ledger proves: counts, faults, days that must wait."""
