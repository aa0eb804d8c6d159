"""A producer sends only bad messages, and the partition halts at the limit.

The other topics go on. When the producer is mended, reading resumes and no message is lost.
"""

import json
import time

import pytest

from annals.embedded.broker import KafkaServer
from ingest.consumer.periodic_work import HEARTBEAT_SECONDS
from tests.consuming import (
    LIVE_TOPICS,
    ConsumerProcess,
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    produce_messages,
    wait_until,
)
from tests.messages import TOPIC, make_value
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

LIMIT = 200
LOW_LIMIT = {"ANNALS_MAX_BAD_IN_A_ROW": str(LIMIT)}
BAD_COUNT = 700


def send_bad(broker: KafkaServer, count: int) -> None:
    produce_messages(
        broker.make_client_config(),
        *((TOPIC, make_value(id=f"bad {n}", version="v7")) for n in range(count)),
    )


def is_halted(database: ProductDatabase) -> bool:
    return bool(database.query("SELECT 1 FROM ingest_ledger WHERE halted_at IS NOT NULL"))


def wait_for_halt(database: ProductDatabase, running: ConsumerProcess) -> None:
    wait_until(lambda: is_halted(database), running.read_log)
    assert f"{LIMIT} bad messages in a row" in running.read_log()


def test_partition_halts_on_bad_messages_and_resumes_by_itself(
    consumers: ConsumerStarter, database: ProductDatabase, feed: MessageFeed, broker: KafkaServer
) -> None:
    running = consumers.start_consumer(**LOW_LIMIT)
    running.wait_until_reading()
    # No good messages go to this topic now: the consumer looks every five seconds, and good
    # messages behind the bad ones would end the halt.
    feed.topics = [topic for topic in LIVE_TOPICS if topic != TOPIC]
    with feed.send_in_background(100):
        send_bad(broker, BAD_COUNT)
        wait_for_halt(database, running)
        wait_until(lambda: len(database.list_quarantined()) == LIMIT, running.read_log)
        stored_before = database.count_rows("product_task_aud")
        wait_until(
            lambda: database.count_rows("product_task_aud") > stored_before + 50,
            "the other topics are not read",
        )
        assert len(database.list_quarantined()) == LIMIT
        listing = consumers.run_command("quarantine", "list").stdout
        assert f"HALTED {TOPIC}[0]" in listing
        assert "quarantine resume" in listing
        # The producer is mended. In the topic its good messages follow the bad ones.
        feed.topics = LIVE_TOPICS
        produce_messages(
            broker.make_client_config(),
            *((TOPIC, make_value(id=f"good {number}")) for number in range(40)),
        )
        wait_until(lambda: len(database.list_quarantined()) == BAD_COUNT, running.read_log)
    total = feed.produced.total() + BAD_COUNT + 40
    wait_until(lambda: database.count_read() == total, running.read_log)
    wait_until(lambda: not is_halted(database), running.read_log)
    running.terminate()
    assert database.count_stored_versions() == feed.produced.total() + 40
    finished = consumers.run_command("ledger", "--json")
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["totals"]["quarantined"] == BAD_COUNT


def test_recording_of_a_halt_is_retried_until_the_ledger_can_be_updated(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    database.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE 'not now'; END $$"
    )
    database.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON ingest_ledger FOR EACH ROW"
        " WHEN (NEW.halted_at IS NOT NULL) EXECUTE FUNCTION refuse()"
    )
    running = consumers.start_consumer(**LOW_LIMIT)
    running.wait_until_reading()
    send_bad(broker, BAD_COUNT)
    wait_until(
        lambda: (
            "recording which partitions are halted failed; the consumer tries again"
            in running.read_log()
        ),
        running.read_log,
    )
    assert not is_halted(database)
    database.execute("DROP TRIGGER refuse ON ingest_ledger")
    wait_for_halt(database, running)
    assert consumers.run_command("quarantine", "resume", TOPIC).returncode == 0
    wait_until(lambda: len(database.list_quarantined()) == BAD_COUNT, running.read_log)
    wait_until(lambda: not is_halted(database), running.read_log)


def test_consume_until_idle_exits_with_3_when_a_partition_halts(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    send_bad(broker, BAD_COUNT)
    summary = consumers.start_consumer("--until-idle", "1", **LOW_LIMIT).wait_for_end(code=3)
    assert summary["halted"] == [f"{TOPIC}[0]"]
    assert len(database.list_quarantined()) == LIMIT


def test_consumer_ends_on_sigterm_while_it_probes_a_halted_partition(
    consumers: ConsumerStarter, database: ProductDatabase, broker: KafkaServer
) -> None:
    """The probe waits for a broker that is down. The session is long, so that the partition stays
    assigned."""
    running = consumers.start_consumer(**LOW_LIMIT, ANNALS_KAFKA_SESSION_TIMEOUT_MS="10000")
    running.wait_until_reading()
    send_bad(broker, BAD_COUNT)
    wait_for_halt(database, running)
    broker.kill()
    time.sleep(HEARTBEAT_SECONDS + 1)
    running.terminate()
