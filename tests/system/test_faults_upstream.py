"""A release upstream that makes every message bad: reading halts at the limit, the alarm is raised,
the other topics go on, and nothing is lost once the cause is gone."""

import json
import time

import pytest

from annals.embedded.broker import Daemon
from ingest.consumer.periodic_work import HEARTBEAT_SECONDS
from tests.consuming import LIVE, Consumers, Database, Feed, Running, send, until
from tests.messages import TOPIC, value
from tests.processes import consumers, database, feed, server

pytestmark = [pytest.mark.system, pytest.mark.one_broker]
__all__ = ["consumers", "database", "feed", "server"]

LIMIT = 200
STRICT = {"ANNALS_MAX_BAD_IN_A_ROW": str(LIMIT)}
BAD = 700


def bad(broker: Daemon, count: int) -> None:
    send(broker.client(), *((TOPIC, value(id=f"bad {n}", version="v7")) for n in range(count)))


def is_halted(database: Database) -> bool:
    return bool(database.query("SELECT 1 FROM ingest_ledger WHERE halted_at IS NOT NULL"))


def halted(database: Database, running: Running) -> None:
    until(lambda: is_halted(database), running.said)
    assert f"{LIMIT} bad messages in a row" in running.said()


def test_it_halts_and_goes_on_by_itself(
    consumers: Consumers, database: Database, feed: Feed, broker: Daemon
) -> None:
    running = consumers.start(**STRICT)
    running.until_reading()
    # Good messages behind the bad ones would end the halt at the next look, in five seconds.
    feed.topics = [topic for topic in LIVE if topic != TOPIC]
    with feed.pouring(100):
        bad(broker, BAD)
        halted(database, running)
        until(lambda: len(database.quarantined()) == LIMIT, running.said)
        before = database.count("product_task_aud")
        until(lambda: database.count("product_task_aud") > before + 50, "the others stand still")
        assert len(database.quarantined()) == LIMIT
        listed = consumers.manage("quarantine", "list").stdout
        assert f"HALTED {TOPIC}[0]" in listed
        assert "quarantine resume" in listed
        # The cause is gone upstream; what is bad stays in the topic before what is good.
        feed.topics = LIVE
        send(broker.client(), *((TOPIC, value(id=f"good {number}")) for number in range(40)))
        until(lambda: len(database.quarantined()) == BAD, running.said)
    total = feed.produced.total() + BAD + 40
    until(lambda: database.read() == total, running.said)
    until(lambda: not is_halted(database), running.said)
    running.terminate()
    assert database.total() == feed.produced.total() + 40
    done = consumers.manage("ledger", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["totals"]["quarantined"] == BAD


def test_a_halt_that_could_not_be_recorded_is_recorded_later(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    database.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
                   " $$ BEGIN RAISE 'not now'; END $$")  # fmt: skip
    database.execute("CREATE TRIGGER refuse BEFORE UPDATE ON ingest_ledger FOR EACH ROW"
                   " WHEN (NEW.halted_at IS NOT NULL) EXECUTE FUNCTION refuse()")  # fmt: skip
    running = consumers.start(**STRICT)
    running.until_reading()
    bad(broker, BAD)
    until(lambda: "not written, the next attempt follows" in running.said(), running.said)
    assert not is_halted(database)
    database.execute("DROP TRIGGER refuse ON ingest_ledger")
    halted(database, running)
    assert consumers.manage("quarantine", "resume", TOPIC).returncode == 0
    until(lambda: len(database.quarantined()) == BAD, running.said)
    until(lambda: not is_halted(database), running.said)


def test_a_script_notices_that_not_all_is_read(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    bad(broker, BAD)
    summary = consumers.start("--until-idle", "1", **STRICT).end(code=3)
    assert summary["halted"] == [f"{TOPIC}[0]"]
    assert len(database.quarantined()) == LIMIT


def test_sigterm_while_a_halted_partition_is_looked_at(
    consumers: Consumers, database: Database, broker: Daemon
) -> None:
    """The look waits for a broker that is gone. The session is long: what is halted stays ours."""
    running = consumers.start(**STRICT, ANNALS_KAFKA_SESSION_TIMEOUT_MS="10000")
    running.until_reading()
    bad(broker, BAD)
    halted(database, running)
    broker.kill()
    time.sleep(HEARTBEAT_SECONDS + 1)
    running.terminate()
