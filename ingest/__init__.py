"""The way of a message from Kafka into the tables.

source: polls, and decodes each message into a record or the reason why not. consumer: the loop and
the state machine, which fill one batch while another is written. store: batches, and the
transaction that writes one: fast_path, slow_path where rows are repeats or cannot be stored, the
search index, the quarantine and the ledger. quarantine: bad messages afterwards. completeness: what
the ledger proves.
"""
