"""Minutes to loss: when the brokers delete what is not read yet, and what to read first."""
