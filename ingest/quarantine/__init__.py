"""Messages that could not be stored: kept, retried, discarded."""
