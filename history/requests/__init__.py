"""What holds for one request: its deadline, its share of the workers and what it has read."""
