"""What the ledger proves: counts, faults, losses, and days that must be held."""
