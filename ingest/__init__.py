"""The way of a message from Kafka into the tables.

Begin with consumer/loop.py, which fills one batch while another is written.
`kafka` reads from the brokers, `messages` decodes, and `store` writes a batch in one transaction.
Later, `quarantine` retries bad messages. `completeness` shows what became of all messages.
"""
