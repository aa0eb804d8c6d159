"""`python -m tests.drill --gb 2`: a backup under ingest, a disaster, a restore to a moment.

Then a consumer gets from Kafka what the restored database does not have. Ends with 1 if a message
is lost or doubled, if the ledger does not add up or a seal differs. Prints what each step took.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from annals.embedded import logins
from annals.embedded.broker import Broker, Daemon
from history.daily import days
from history.entities import ENTITIES, ROOT
from tests.apache.broker import Apache
from tests.consuming import Consumers, Database, Feed, command, environment, make_tables, until
from tests.drill.servers import GB, START_SECONDS, back_up, primary, restore, size, took
from tests.kafka import brokers
from tests.messages import NOW

RATE = 300
ROW_BYTES = 2_048
# Days that are old enough to be sealed, filled with what the backup has to carry.
FILLED = range(15, 20)
LOOK = (
    "INSERT INTO access_journal (login, actor, address, request_id, action, entity, entity_id,"
    " application, outcome, status, method, query, reason, identity, path, moment)"
    " VALUES ('drill', 'operator', '', '{id}', 'timeline', '', '', '', 'shown', 200, 'GET', '',"
    " '', '', '', '')"
)


class Failed(Exception):
    """The drill shows a fault. The message says which."""


def demand(true: object, complaint: str) -> None:
    if not true:
        raise Failed(complaint)


def fill(database: Database, gigabytes: float) -> str:
    """Rows of old days, below the size at which PostgreSQL would compress them."""
    began, table = time.monotonic(), ROOT.table
    rows = int(gigabytes * GB / ROW_BYTES / len(FILLED))
    for back in FILLED:
        day = NOW - timedelta(days=back)
        with psycopg.connect(database.url_of(logins.OWNER), autocommit=True) as owner:
            for entity in ENTITIES:
                days.create(owner, entity.table, day.date())
            owner.execute(
                f"INSERT INTO {table} (id, version, data, updated_at, client_id, type)"
                " SELECT 'fill' || %s || '-' || i, 0, jsonb_build_object('n', i, 'text',"
                " repeat(md5(i::text), 58)), %s, 'drill', 0 FROM generate_series(1, %s) AS i",
                (back, day, rows),
            )
    return took("filled", database.server.data, began)


def ledger(env: dict[str, str]) -> dict[str, Any]:
    """What `annals ledger --json` says; it asks Kafka for the ends."""
    done = command(env, "ledger", "--json")
    demand(done.returncode == 0, f"the ledger does not add up: {done.stdout}{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)["totals"]
    return found


def manage(env: dict[str, str], *words: str) -> str:
    done = command(env, *words)
    demand(done.returncode == 0, f"manage.py {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def drill(folder: Path, gigabytes: float, kind: str, say: Callable[[str], None]) -> None:
    """The whole drill. Raises Failed."""
    server, archive = primary(folder)
    broker: Daemon = {"apache": Apache, "embedded": Broker}[kind](folder / "broker")
    restored = None
    consumers = None
    try:
        broker.start()
        brokers.create(broker, [topic for entity in ENTITIES for topic in entity.topics])
        database = Database(server, "annals", server.url())
        env = environment(broker, database)
        make_tables(env, server)
        manage(env, "partitions", "maintain")
        consumers, feed = Consumers(env, folder), Feed(broker.client() | {"log_level": 0})
        running = consumers.start()
        running.until_reading()
        say(fill(database, gigabytes))
        feed.send(RATE)
        until(lambda: database.read() == RATE, running.said)
        manage(env, "partitions", "maintain")
        seals = database.query("SELECT count(*) FROM day_seal")[0]["count"]
        demand(seals, "no day was sealed")
        with feed.pouring(RATE):
            say(back_up(server, folder / "backup"))
            database.execute(LOOK.format(id="before"))
            time.sleep(3)
            [row] = database.query("SELECT clock_timestamp() AS moment")
            had = database.read()
            database.execute(LOOK.format(id="after"))
            time.sleep(3)
        until(lambda: database.read() == feed.produced.total(), running.said)
        running.terminate(10)
        database.execute("SELECT pg_switch_wal()")
        last = "SELECT last_archived_wal IS NOT NULL AND failed_count = 0 AS good,"
        last += " last_archived_time > %s::timestamptz + interval '3 s' AS new"
        until(
            lambda: database.query(f"{last} FROM pg_stat_archiver", row["moment"])[0]["new"],
            "the WAL is not archived",
        )
        server.kill()
        say(f"the primary is gone; {feed.produced.total()} messages were stored, {had} at the "
            f"moment to restore; WAL archived: {size(archive) / GB:.2f} GB")  # fmt: skip

        began = time.monotonic()
        restored = restore(folder / "backup", archive, row["moment"], server, folder / "restored")
        copied = took("copied back", restored.data, began)
        began = time.monotonic()
        restored.start(START_SECONDS)
        say(f"{copied}; WAL replayed and promoted in {time.monotonic() - began:.0f} s")

        after = replace(database, server=restored, url=restored.url())
        env = environment(broker, after)
        looks = after.query("SELECT request_id FROM access_journal WHERE login = 'drill'")
        demand([each["request_id"] for each in looks] == ["before"], f"journal: {looks}")
        told = ledger(env)
        there = after.read()
        demand(told["lag"] == feed.produced.total() - there, f"lag {told['lag']}, {there} there")
        demand(told["lag"] > 0, "nothing is missing: the drill shows nothing")
        say(f"the ledger: {there} messages are here, Kafka has to send {told['lag']} again")
        began = time.monotonic()
        consumers.env = env
        consumers.drain()
        say(f"a consumer caught up in {time.monotonic() - began:.0f} s, its start included")
        of_feed = "WHERE id NOT LIKE 'fill%'"
        demand(after.stored(of_feed) == feed.produced, "lost or doubled messages")
        told = ledger(env)
        demand(told["lag"] == 0 and told["lost"] == 0, f"ledger: {told}")
        demand(told["read"] == feed.produced.total(), f"ledger: {told}")
        began = time.monotonic()
        manage(env, "partitions", "maintain")
        manage(env, "partitions", "verify")
        kept = after.query("SELECT count(*) FROM day_seal")[0]["count"]
        demand(kept == seals, f"{kept} seals, {seals} before")
        say(f"{kept} seals verified in {time.monotonic() - began:.0f} s; each of "
            f"{feed.produced.total()} messages is stored once; the ledger adds up")  # fmt: skip
    finally:
        if consumers is not None:
            consumers.stop()
        broker.kill()
        for each in (server, restored):
            if each is not None:
                each.stop("immediate")


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    add = parser.add_argument
    add("--gb", type=float, default=2,
        help="size of the database; needs four times this on the disk "
        "(default: %(default)s)")  # fmt: skip
    add("--broker", choices=("apache", "embedded"), default="apache",
        help="apache needs Java and Maven (default: %(default)s)")  # fmt: skip
    add("--folder", type=Path, default=Path(tempfile.gettempdir()),
        help="where the servers are made (default: %(default)s)")  # fmt: skip
    options = parser.parse_args(given)
    # Servers end with it, also when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="annals-drill-", dir=options.folder))
    folder.chmod(0o755)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    try:
        drill(folder, options.gb, options.broker, say)
    except Failed as fault:
        print(f"FAILED  {fault}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("good")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
