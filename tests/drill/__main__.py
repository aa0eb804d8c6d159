"""`python -m tests.drill --gb 2`: a backup under ingest, a disaster, and a restore to a moment.

Afterwards a consumer reads from Kafka the messages that the restored database lacks. The drill
prints how long each step took. It ends with 1 if a message is lost or stored twice, if the ledger
does not add up, or if a seal differs.
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
from annals.embedded.broker import EmbeddedBroker, KafkaServer
from history.kinds.entities import ENTITIES, ROOT
from history.store.days import days
from tests.apache.broker import Apache
from tests.consuming import (
    ConsumerStarter,
    MessageFeed,
    ProductDatabase,
    make_environment,
    make_tables,
    run_command,
    wait_until,
)
from tests.drill.servers import (
    GB,
    START_SECONDS,
    back_up_server,
    describe_speed,
    measure_size,
    restore_server,
    start_primary,
)
from tests.kafka import brokers
from tests.messages import NOW

RATE = 300
ROW_BYTES = 2_048
# The ages of the days that are filled to give the backup its size. They are old enough to be
# sealed.
FILLED_DAYS = range(15, 20)
INSERT_ACCESS = (
    "INSERT INTO access_journal (login, actor, address, request_id, action, entity, entity_id,"
    " application, outcome, status, method, query, reason, identity, path, moment)"
    " VALUES ('drill', 'operator', '', '{id}', 'timeline', '', '', '', 'shown', 200, 'GET', '',"
    " '', '', '', '')"
)


class DrillError(Exception):
    """Raised with a sentence about the fault that the drill has found."""


def require(condition: object, complaint: str) -> None:
    if not condition:
        raise DrillError(complaint)


def fill_old_days(database: ProductDatabase, gigabytes: float) -> str:
    """Fill old days with rows that are too small for PostgreSQL to compress them."""
    began, table = time.monotonic(), ROOT.table
    rows = int(gigabytes * GB / ROW_BYTES / len(FILLED_DAYS))
    for age in FILLED_DAYS:
        day = NOW - timedelta(days=age)
        with psycopg.connect(database.build_url(logins.OWNER), autocommit=True) as owner:
            for entity in ENTITIES:
                days.create_partition(owner, entity.table, day.date())
            owner.execute(
                f"INSERT INTO {table} (id, version, data, updated_at, client_id, type)"
                " SELECT 'fill' || %s || '-' || i, 0, jsonb_build_object('n', i, 'text',"
                " repeat(md5(i::text), 58)), %s, 'drill', 0 FROM generate_series(1, %s) AS i",
                (age, day, rows),
            )
    return describe_speed("filled", database.server.data, began)


def read_ledger(env: dict[str, str]) -> dict[str, Any]:
    """Return the totals of `annals ledger --json`, which asks Kafka for the end offsets."""
    finished = run_command(env, "ledger", "--json")
    require(
        finished.returncode == 0, f"the ledger does not add up: {finished.stdout}{finished.stderr}"
    )
    totals: dict[str, Any] = json.loads(finished.stdout)["totals"]
    return totals


def run_successfully(env: dict[str, str], *arguments: str) -> str:
    finished = run_command(env, *arguments)
    require(
        finished.returncode == 0,
        f"manage.py {' '.join(arguments)}: {finished.stdout}{finished.stderr}",
    )
    return finished.stdout


def run_drill(
    folder: Path, gigabytes: float, kind: str, print_progress: Callable[[str], None]
) -> None:
    """Run the whole drill.

    Raises:
        DrillError: A message or a seal is not as it should be.
    """
    server, archive = start_primary(folder)
    broker: KafkaServer = {"apache": Apache, "embedded": EmbeddedBroker}[kind](folder / "broker")
    restored = None
    consumers = None
    try:
        broker.start()
        brokers.create_topics(broker, [topic for entity in ENTITIES for topic in entity.topics])
        database = ProductDatabase(server, "annals", server.build_url())
        env = make_environment(broker, database)
        make_tables(env, server)
        run_successfully(env, "partitions", "maintain")
        consumers, feed = (
            ConsumerStarter(env, folder),
            MessageFeed(broker.make_client_config() | {"log_level": 0}),
        )
        running = consumers.start_consumer()
        running.wait_until_reading()
        print_progress(fill_old_days(database, gigabytes))
        feed.send_many(RATE)
        wait_until(lambda: database.count_read() == RATE, running.read_log)
        run_successfully(env, "partitions", "maintain")
        seals = database.query("SELECT count(*) FROM day_seal")[0]["count"]
        require(seals, "no day was sealed")
        with feed.send_in_background(RATE):
            print_progress(back_up_server(server, folder / "backup"))
            database.execute(INSERT_ACCESS.format(id="before"))
            time.sleep(3)
            [row] = database.query("SELECT clock_timestamp() AS moment")
            read_at_moment = database.count_read()
            database.execute(INSERT_ACCESS.format(id="after"))
            time.sleep(3)
        wait_until(lambda: database.count_read() == feed.produced.total(), running.read_log)
        running.terminate(10)
        database.execute("SELECT pg_switch_wal()")
        archived_query = "SELECT last_archived_wal IS NOT NULL AND failed_count = 0 AS good,"
        archived_query += " last_archived_time > %s::timestamptz + interval '3 s' AS new"
        wait_until(
            lambda: database.query(f"{archived_query} FROM pg_stat_archiver", row["moment"])[0][
                "new"
            ],
            "the WAL is not archived",
        )
        server.kill()
        print_progress(
            f"the primary is gone; {feed.produced.total()} messages were stored, "
            f"{read_at_moment} at the moment to restore; "
            f"WAL archived: {measure_size(archive) / GB:.2f} GB"
        )

        began = time.monotonic()
        restored = restore_server(
            folder / "backup", archive, row["moment"], server, folder / "restored"
        )
        copy_line = describe_speed("copied back", restored.data, began)
        began = time.monotonic()
        restored.start(START_SECONDS)
        print_progress(
            f"{copy_line}; WAL replayed and promoted in {time.monotonic() - began:.0f} s"
        )

        restored_database = replace(database, server=restored, url=restored.build_url())
        env = make_environment(broker, restored_database)
        accesses = restored_database.query(
            "SELECT request_id FROM access_journal WHERE login = 'drill'"
        )
        require([access["request_id"] for access in accesses] == ["before"], f"journal: {accesses}")
        totals = read_ledger(env)
        read_after_restore = restored_database.count_read()
        require(
            totals["lag"] == feed.produced.total() - read_after_restore,
            f"lag {totals['lag']}, {read_after_restore} there",
        )
        require(totals["lag"] > 0, "nothing is missing: the drill shows nothing")
        print_progress(
            f"the ledger: {read_after_restore} messages are here, Kafka has to send "
            f"{totals['lag']} again"
        )
        began = time.monotonic()
        consumers.env = env
        consumers.consume_to_end()
        print_progress(
            f"a consumer caught up in {time.monotonic() - began:.0f} s, its start included"
        )
        of_feed = "WHERE id NOT LIKE 'fill%'"
        require(
            restored_database.count_stored(of_feed) == feed.produced, "lost or doubled messages"
        )
        totals = read_ledger(env)
        require(totals["lag"] == 0 and totals["lost"] == 0, f"ledger: {totals}")
        require(totals["read"] == feed.produced.total(), f"ledger: {totals}")
        began = time.monotonic()
        run_successfully(env, "partitions", "maintain")
        run_successfully(env, "partitions", "verify")
        seals_after = restored_database.query("SELECT count(*) FROM day_seal")[0]["count"]
        require(seals_after == seals, f"{seals_after} seals, {seals} before")
        print_progress(
            f"{seals_after} seals verified in {time.monotonic() - began:.0f} s; each of "
            f"{feed.produced.total()} messages is stored once; the ledger adds up"
        )
    finally:
        if consumers is not None:
            consumers.kill_all()
        broker.kill()
        for running_server in (server, restored):
            if running_server is not None:
                running_server.stop("immediate")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    add = parser.add_argument
    add(
        "--gb",
        type=float,
        default=2,
        help="size of the database; needs four times this on the disk (default: %(default)s)",
    )
    add(
        "--broker",
        choices=("apache", "embedded"),
        default="apache",
        help="apache needs Java and Maven (default: %(default)s)",
    )
    add(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="folder for the servers (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    # With this handler SIGTERM ends the drill through `finally`, which stops the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="annals-drill-", dir=options.folder))
    folder.chmod(0o755)
    began = time.monotonic()

    def print_progress(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    try:
        run_drill(folder, options.gb, options.broker, print_progress)
    except DrillError as fault:
        print(f"FAILED  {fault}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("good")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
