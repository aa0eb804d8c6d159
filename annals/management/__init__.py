"""`partitions verify`: runs the checks and prints what they find."""
