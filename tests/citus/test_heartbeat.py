"""Consumers write their heartbeats in a distributed installation."""

import time

from ingest.store.batch import Claim
from ingest.store.ledger import Foreseen, foresee, heartbeat
from tests.citus.cluster import Citus
from tests.messages import SOURCE

_FOUND = """
SELECT checked_at > '2000-01-02', high_watermark, end_known_at IS NOT NULL, loss_at IS NOT NULL
FROM ingest_ledger
"""


def test_a_heartbeat_and_a_forecast_are_written(distributed: Citus) -> None:
    plain = distributed.raw()
    plain.execute(
        "INSERT INTO ingest_ledger (topic, topic_id, partition, first_offset, next_offset, epoch,"
        " read, stored, repeated, expired, quarantined, skipped, lost, halted_why, updated_at,"
        " checked_at) VALUES (%s, %s, %s, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '', '2000-01-01',"
        " '2000-01-01')",
        [SOURCE.topic, SOURCE.topic_id, SOURCE.partition],
    )
    held = Claim(SOURCE, 1, 0, 0, halted=False)
    heartbeat(plain, {held: 7}, time.monotonic())
    foresee(plain, {held: Foreseen(2e9, 3.0, 1.0)}, 5.0)
    assert distributed.rows(_FOUND) == [(True, 7, True, True)]
    heartbeat(plain, {held: None}, None, answered=[])
    assert distributed.rows(_FOUND) == [(True, 7, True, True)]
