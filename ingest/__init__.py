"""The way of a message from Kafka into the tables, room by room.

What happens to a message:
source        kafka polls
consumer      loop hands each message to state_machine, which says what to do with it; one batch
              fills while another is written; positions, breaker, background
source        decode makes a record of the message, or names the reason why not
store         batch collects records, rejects and offsets; retrying repeats the write until the
              database has done it; transaction writes one batch: the rows by fast_path (by
              slow_path where some are repeats or cannot be stored; sqlstate says whose fault an
              error is), search_index, rejects into the quarantine, and the ledger moves on

The other rooms:

quarantine    bad messages afterwards: retry, discard, the screen, retention
completeness  what the ledger proves, which days wait for what was not read (holds)
simulator     realistic load; management holds the commands; metrics are Prometheus'
"""
