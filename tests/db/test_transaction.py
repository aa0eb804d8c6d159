"""Writing batches to a real PostgreSQL: good rows are stored, and bad ones are quarantined."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from psycopg.errors import DeadlockDetected

from history.kinds.entities import BY_NAME, ROOT
from history.store import distribution
from history.store.blocks.queries import BLOCK_COLUMNS
from history.store.days import days
from ingest.consumer.lanes import Lane
from ingest.consumer.writers import RetryingWriter
from ingest.messages.decode import Reason, decode_message
from ingest.messages.message import KafkaMessage
from ingest.quarantine import messages
from ingest.quarantine.messages import MessageSelection
from ingest.store import transaction as writing
from ingest.store.batch import Batch, Limits
from ingest.store.copy import RowsDroppedError
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.consuming import wait_until
from tests.db.ingested import (
    CHILD_SOURCE,
    SOURCES,
    TWIN_SOURCE,
    Ingested,
    find_faults,
    list_ids,
    list_quarantined,
    list_rows,
    query,
    read_counts,
    search_ids,
)
from tests.messages import (
    FOUND_BY_POSTGRESQL,
    HOSTILE,
    NOW,
    SOURCE,
    TOPIC,
    WINDOW,
    make_message,
    make_value,
    make_value_with_data,
)

TASK = BY_NAME["product-task"]
# The statement of another writer.
INSERT = (
    "INSERT INTO product_instance_aud (id, version, updated_at, data, client_id, type)"
    " VALUES (%s, 7, %s, '{}', '', 1)"
)


def is_lock_awaited() -> bool:
    """Return whether a session waits for a lock, on any node if there is a cluster."""
    with open_connection("test") as plain:
        waits = (
            "citus_lock_waits"
            if distribution.is_distributed(plain)
            else "pg_locks WHERE NOT granted"
        )
        return plain.execute(f"SELECT 1 FROM {waits}").fetchone() is not None


def test_stored_row_has_fields_of_the_message(ingested: Ingested) -> None:
    ingested.write(
        make_value_with_data(
            b'{"b": 12345678901234567890.10, "a":"\xd1\x8b\\u0041"}',
            updatedAt=f"{NOW:%Y-%m-%dT%H:%M:%S}.510186999",
        )
    )
    [row] = list_rows()
    assert row.pop("text") == '{"a": "ыA", "b": 12345678901234567890.10}'
    row = {name: row[name] for name in row if name not in {"data", *BLOCK_COLUMNS}}
    assert row == {
        "id": "02xdf2pQLJL5mLfJZodiHa",
        "version": 7,
        "updated_at": NOW + timedelta(microseconds=510186),
        "client_id": "top-data-client-actualizator",
        "author": "m.prygunov",
        "type": 1,
    }
    assert read_counts() == {"next_offset": 1, "read": 1, "stored": 1}


def test_snapshot_is_stored_when_numbers_have_as_many_digits_as_postgresql_allows(
    ingested: Ingested,
) -> None:
    """PostgreSQL stores 1e131071 with 131,072 digits."""
    ingested.write(make_value_with_data(b'{"a":[' + b"1e131071," * 500 + b"0]}"))
    [row] = query("SELECT length(data::text) AS length FROM product_instance_aud")
    assert row["length"] > 500 * 131_071


def test_deletion_of_child_is_stored_when_it_has_no_author(ingested: Ingested) -> None:
    ingested.write(
        make_value(productInstanceId="A1", author=None, type="DELETE", data=None),
        source=CHILD_SOURCE,
    )
    [row] = list_rows(TASK)
    assert (row["product_instance_id"], row["author"], row["type"]) == ("A1", None, 2)
    assert row["text"] == "null"


def test_only_needed_days_are_created(ingested: Ingested) -> None:
    moments = [NOW, NOW - timedelta(days=3), NOW + timedelta(days=2)]
    written = ingested.write(
        *(make_value(id=str(n), updatedAt=moment.isoformat()) for n, moment in enumerate(moments))
    )
    assert sum(written.stored.values()) == 3
    rows = query(
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent ="
        " 'product_instance_aud'::regclass"
    )
    assert {row["name"] for row in rows} == {
        days.build_partition_name(ROOT.table, moment.date()) for moment in moments
    }
    assert find_faults() == []


def test_versions_that_share_a_moment_are_both_kept(ingested: Ingested) -> None:
    ingested.write(make_value(version=1), make_value(version=2))
    assert [row["version"] for row in list_rows()] == [1, 2]
    assert list_rows()[0]["updated_at"] == list_rows()[1]["updated_at"]


def test_two_versions_of_one_number_with_different_moments_are_both_stored(
    ingested: Ingested,
) -> None:
    ingested.write(make_value(), make_value(updatedAt=(NOW - timedelta(hours=1)).isoformat()))
    assert len(list_rows()) == 2


def test_message_counts_as_repeated_when_its_version_is_stored_or_earlier_in_the_batch(
    ingested: Ingested,
) -> None:
    ingested.write(make_value(id="a"), make_value(id="a"), make_value(id="b"))
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 2, "repeated": 1}
    ingested.write(make_value(id="b"), make_value(id="c"), make_value(id="a"))
    assert read_counts() == {"next_offset": 6, "read": 6, "stored": 3, "repeated": 3}
    assert list_ids() == ["a", "b", "c"]
    assert list_quarantined() == []
    assert find_faults() == []


def test_version_that_migration_twin_brings_again_counts_as_repeated(ingested: Ingested) -> None:
    ingested.write(make_value(id="a"), make_value(id="b"))
    batch = ingested.make_batch(make_value(id="a"), source=TWIN_SOURCE)
    ingested.fill(batch, make_value(id="c"))
    ingested.store(batch)
    assert read_counts(TWIN_SOURCE) == {"next_offset": 1, "read": 1, "repeated": 1}
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 3}
    assert find_faults() == []


@pytest.mark.parametrize(
    "changes",
    [{"data": {"rate": "1"}}, {"clientId": "other"}, {"author": None}, {"type": "CREATE"}],
    ids=str,
)
@pytest.mark.parametrize("apart", [False, True])
def test_repeated_version_with_different_content_is_quarantined(
    ingested: Ingested, changes: dict[str, Any], apart: bool
) -> None:
    bodies = make_value(id="a"), make_value(id="a", **changes), make_value(id="b")
    if apart:
        for body in bodies:
            ingested.write(body)
    else:
        ingested.write(*bodies)
    [row] = list_quarantined()
    assert (row["offset"], row["reason"], bytes(row["value"])) == (
        1,
        "divergent_duplicate",
        bodies[1],
    )
    assert list_rows()[0]["data"] == {"rate": "18.4", "amount": 1}
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 2, "quarantined": 1}
    assert find_faults() == []


def test_repeated_child_version_that_names_a_different_application_is_quarantined(
    ingested: Ingested,
) -> None:
    ingested.write(make_value(productInstanceId="A1"), source=CHILD_SOURCE)
    ingested.write(make_value(productInstanceId="A2"), source=CHILD_SOURCE)
    assert [row["reason"] for row in list_quarantined()] == ["divergent_duplicate"]


@pytest.mark.parametrize("name", ["cut off", *FOUND_BY_POSTGRESQL])
def test_hostile_message_among_good_ones_is_quarantined(ingested: Ingested, name: str) -> None:
    """Decoding refuses the message that is cut off, and PostgreSQL refuses the rest of these
    messages. test_decode.py has all messages that decoding refuses."""
    reason, body = HOSTILE[name]
    headers = (("trace", b"\xff\0"), ("none", None), ("trace", b""))
    bad = make_message(body, 2, headers=headers)
    ingested.write(make_value(id="a"), make_value(id="b"), bad, make_value(id="c"))
    assert list_ids() == ["a", "b", "c"]
    [row] = list_quarantined()
    assert row["reason"] == reason
    assert row["detail"]
    assert row["value"] == body
    assert row["key"] == b"key"
    assert (row["topic"], row["topic_id"], row["partition"], row["offset"]) == (
        TOPIC,
        SOURCE.topic_id,
        0,
        2,
    )
    assert row["headers"] == [["trace", "ff00"], ["none", None], ["trace", ""]]
    assert (row["status"], row["attempts"]) == ("new", 0)
    assert row["next_attempt"] > row["first_seen"]
    assert read_counts() == {"next_offset": 4, "read": 4, "stored": 3, "quarantined": 1}
    assert find_faults() == []


def test_bad_message_is_quarantined_whatever_names_its_headers_have(ingested: Ingested) -> None:
    headers = (("plain", b"1"), ("n\0ul", b"2"), ("\udcff", None), ("ы", b""), ("", b"\0"))
    ingested.write(make_message(b"bad", 0, headers=headers))
    [row] = list_quarantined()
    assert row["headers"][0] == ["plain", "31"]
    with open_connection() as plain:
        [locked] = messages.lock_messages(plain, MessageSelection(), 1)
    names = ["plain", r"n\u0000ul", r"\udcff", "ы", ""]
    assert locked.message.headers == tuple(
        (name, value) for name, (_, value) in zip(names, headers, strict=True)
    )
    out = StringIO()
    call_command("quarantine", "show", str(row["id"]), stdout=out)
    assert r"header \udcff: (none)" in out.getvalue()


def test_batches_after_a_repeated_version_take_the_slow_path_for_a_while(
    ingested: Ingested,
) -> None:
    ingested.write(make_value(id="x"), make_value(id="x"))
    for number in range(writing.SLOW_PATH_BATCHES * 2):
        ingested.write(make_value(id=f"{number}"))
    assert len(list_rows()) == 1 + writing.SLOW_PATH_BATCHES * 2
    ingested.write(make_value(id="x"))
    assert read_counts()["repeated"] == 2
    assert find_faults() == []


def test_failed_batch_stores_nothing(ingested: Ingested) -> None:
    ingested.write(make_value(id="a"))
    good = ingested.make_batch(make_value(id="b"), b"bad")
    with open_connection() as other_session:
        other_session.execute("ALTER TABLE ingest_quarantine RENAME TO elsewhere")
        try:
            with pytest.raises(psycopg.errors.UndefinedTable):
                ingested.store(good)
        finally:
            other_session.execute("ALTER TABLE elsewhere RENAME TO ingest_quarantine")
    assert list_ids() == ["a"]
    assert read_counts() == {"next_offset": 1, "read": 1, "stored": 1}
    ingested.store(good)
    assert list_ids() == ["a", "b"]
    assert read_counts() == {"next_offset": 3, "read": 3, "stored": 2, "quarantined": 1}


def test_lost_connection_is_opened_again(ingested: Ingested) -> None:
    ingested.write(make_value(id="a"))
    query("SELECT pg_terminate_backend(%s)", ingested.writer.connection.info.backend_pid)
    RetryingWriter(ingested.writer).write(
        ingested.make_batch(make_value(id="b")), ingested.claims, {}
    )
    assert list_ids() == ["a", "b"]
    assert find_faults() == []


def test_batch_is_not_stored_twice_when_answer_to_commit_was_lost(ingested: Ingested) -> None:
    """The connection breaks after PostgreSQL has committed, and before its answer arrives."""
    batch = ingested.make_batch(make_value(id="a"), b"bad")
    once = ingested.writer.write
    tries = 0

    def lose_the_answer(*args: Any) -> Any:
        nonlocal tries
        tries += 1
        once(*args)
        raise psycopg.OperationalError("the answer was lost")

    ingested.writer.write = lose_the_answer  # type: ignore[method-assign]
    RetryingWriter(ingested.writer).write(batch, ingested.claims, {})
    assert tries == 1
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 1, "quarantined": 1}
    assert find_faults() == []


def test_quarantine_keeps_timestamps_of_messages(ingested: Ingested) -> None:
    latest = 253_402_300_799_999
    stamps = (-1, 0, 1_795_248_000_123, latest)
    ingested.write(
        *(KafkaMessage(TOPIC, 0, n, stamp, None, b"bad") for n, stamp in enumerate(stamps))
    )
    rows = query(
        "SELECT (extract(epoch FROM timestamp) * 1000)::bigint AS ms"
        ' FROM ingest_quarantine ORDER BY "offset"'
    )
    assert [row["ms"] for row in rows] == [None, *stamps[1:]]
    assert find_faults() == []


def test_search_keys_are_stored_with_their_rows(ingested: Ingested) -> None:
    ingested.write(
        make_value(id="a", data={"realtyCrmId": "CRM-1", "encumbrance": {"submissionId": 77}}),
        make_value(id="c", data={"realtyCrmId": "no\0"}),
    )
    rows = query("SELECT value, name, id FROM search_key ORDER BY value")
    assert [tuple(row.values()) for row in rows] == [
        ("77", "submissionId", "a"),
        ("CRM-1", "realtyCrmId", "a"),
    ]


def test_no_search_key_is_stored_for_refused_row(ingested: Ingested) -> None:
    """The refused row has the version key of a stored version, but a different snapshot, with the
    search key N-2. While the batch of the refused row waits for a lock, the lane reads version 8
    with the search key N-2. Only version 8 stores this search key."""
    ingested.write(make_value(id="a", data={"number": "N-1"}))
    lane = Lane(0)
    lane.begin(Limits(1_000, 1 << 30))
    claims = {source.kafka: claim for source, claim in ingested.claims.items()}
    ingested.fill(
        lane.filling_batch, make_value(id="a", data={"number": "N-2"}), make_value(id="b")
    )
    with ThreadPoolExecutor(1) as pool, open_connection() as other_session:
        with other_session.transaction():
            other_session.execute(INSERT, ("b", NOW))
            written = pool.submit(ingested.store, lane.launch(claims, 1, 0).batch)
            wait_until(is_lock_awaited, "the writer does not wait")
            ingested.fill(lane.filling_batch, make_value(id="a", version=8, data={"number": "N-2"}))
        assert [reject.reason for reject in written.result(120).refused] == [Reason.DIVERGENT] * 2
    lane.flight = None
    lane.remember(written.result().fingerprints)
    assert search_ids("N-2") == []
    ingested.store(lane.launch(claims, 1, 0).batch)
    assert search_ids("N-2") == ["a"]


def test_search_key_is_stored_only_once_by_a_lane(ingested: Ingested) -> None:
    lane = Lane(0)
    lane.begin(Limits(1_000, 1 << 30))
    claims = {source.kafka: claim for source, claim in ingested.claims.items()}
    for version, keys in enumerate((1, 0)):
        ingested.fill(
            lane.filling_batch, make_value(id="a", version=version, data={"number": "N-1"})
        )
        batch = lane.launch(claims, 1, 0).batch
        assert len(batch.keys) == keys
        lane.flight = None
        lane.remember(ingested.store(batch).fingerprints)
    assert search_ids("N-1") == ["a"]


@pytest.mark.plain_only("a cluster stores rows shard by shard")
def test_rows_of_a_batch_are_stored_sorted_by_id_then_by_offset(ingested: Ingested) -> None:
    ingested.write(*(make_value(id=id, version=n) for n, id in enumerate("bacab")))
    rows = query("SELECT id, version FROM product_instance_aud ORDER BY ctid")
    assert [tuple(row.values()) for row in rows] == [
        ("a", 1),
        ("a", 3),
        ("b", 0),
        ("b", 4),
        ("c", 2),
    ]


def test_two_writers_of_same_rows_store_each_row_once(ingested: Ingested) -> None:
    """One process reads a topic, a second one reads the migration twin of the topic, and the orders
    of the versions differ."""
    bodies = [make_value(id=f"{number:04}") for number in range(600)]
    shuffled = random.Random(5).sample(bodies, len(bodies))
    claims = ingested.claims

    def store_part(part: list[bytes], source: Any) -> None:
        writer = RetryingWriter(BatchWriter(open_connection))
        for start in range(0, len(part), 60):
            batch = Batch(Limits(1_000, 1 << 30))
            for offset, body in enumerate(part[start : start + 60], start):
                sent = make_message(body, offset, source.topic)
                batch.add(decode_message(sent, WINDOW), source, offset)
            writer.write(batch, claims, {})
        writer.batch_writer.close()

    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(store_part, bodies, SOURCE),
            pool.submit(store_part, shuffled, TWIN_SOURCE),
        ]
        for future in futures:
            future.result()
    assert list_ids() == [f"{number:04}" for number in range(600)]
    total = [read_counts(source) for source in SOURCES[:2]]
    assert sum(counts.get("stored", 0) for counts in total) == 600
    assert sum(counts.get("repeated", 0) for counts in total) == 600
    assert list_quarantined() == []
    assert find_faults() == []


def test_same_json_in_other_bytes_counts_as_repeated(ingested: Ingested) -> None:
    """The snapshots of the document `a` differ in the order of fields, in escapes and in the
    notation of numbers. The snapshot of the document `b` does not differ, but it is so long that
    PostgreSQL stores it compressed."""
    long = b'"' + b"a long text " * 2_000 + b'"'
    ingested.write(
        make_value_with_data(b'{"a": 1.0, "b": 2, "c": "\xd1\x8b"}', id="a"),
        make_value_with_data(long.join((b'{"a":', b"}")), id="b"),
    )
    ingested.write(
        make_value_with_data(b'{"b": 2, "c": "\\u044b", "a": 1.00}', id="a"),
        make_value_with_data(long.join((b'{"a":', b"}")), id="b"),
    )
    assert read_counts() == {"next_offset": 4, "read": 4, "stored": 2, "repeated": 2}
    ingested.write(make_value_with_data(b'{"a": 1.01, "b": 2, "c": "\xd1\x8b"}', id="a"))
    assert [row["reason"] for row in list_quarantined()] == ["divergent_duplicate"]
    assert find_faults() == []


def test_batch_is_written_again_after_deadlock(ingested: Ingested) -> None:
    """Two lanes write the same versions in opposite orders. PostgreSQL cancels one of the two
    batches, and the writer writes it again."""
    ingested.write(make_value(id="first"))  # so that the day exists
    batch = ingested.make_batch(make_value(id="a"), make_value(id="z"))
    with ThreadPoolExecutor(1) as pool, open_connection() as other_session:
        with suppress(DeadlockDetected), other_session.transaction(force_rollback=True):
            other_session.execute(INSERT, ("z", NOW))
            writer = RetryingWriter(ingested.writer)
            written = pool.submit(writer.write, batch, ingested.claims, {})
            wait_until(is_lock_awaited, "the writer does not wait")
            other_session.execute(INSERT, ("a", NOW))
        assert sum(written.result(120).stored.values()) == 2
    assert list_ids() == ["a", "first", "z"]
    assert find_faults() == []


@pytest.mark.plain_only("needs a trigger on a table of versions, which Citus refuses")
def test_write_fails_when_a_trigger_drops_rows(ingested: Ingested) -> None:
    with open_connection("test") as plain:
        plain.execute(
            "CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF new.id = 'b' THEN RETURN NULL; END IF; RETURN new; END $$"
        )
        plain.execute(
            "CREATE TRIGGER drops BEFORE INSERT ON product_instance_aud FOR EACH ROW"
            " EXECUTE FUNCTION drop_it()"
        )
        try:
            with pytest.raises(RowsDroppedError, match="took 1 of 2 rows"):
                ingested.write(make_value(id="a"), make_value(id="b"))
        finally:
            plain.execute("DROP TRIGGER drops ON product_instance_aud")
            plain.execute("DROP FUNCTION drop_it()")
    assert list_rows() == []
