"""The quarantine: messages that could not be stored are kept, retried or discarded."""
