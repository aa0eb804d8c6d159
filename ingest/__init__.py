"""The way of a message from Kafka into the tables, room by room.

source        kafka polls, decode makes a record of each message, or names the reason why not
store         batch collects records, rejects and offsets; transaction writes one batch:
              copy of the rows (slow_path where some are repeats or cannot be stored; sqlstate
              says whose fault an error is),
              rejects into the quarantine, search_index, and the ledger moves on; retrying
              repeats that until the database has done it
consumer      loop fills one batch while another is written; positions, breaker, background
quarantine    bad messages afterwards: retry, discard, the screen, retention
completeness  what the ledger proves, which days wait for what was not read (holds)
simulator     realistic load; management holds the commands; metrics are Prometheus'
"""
