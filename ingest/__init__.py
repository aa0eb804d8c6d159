"""The way of a message from Kafka into the tables.

`consumer` has the loop, which fills one batch while another is written: begin with its loop.py.
`kafka` reads from the brokers, `messages` decodes, and `store` writes a batch in one transaction.
Afterwards, `quarantine` retries bad messages, and `completeness` shows what the ledger proves.
"""
