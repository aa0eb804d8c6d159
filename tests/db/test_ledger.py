"""The ledger: who may write it, what it counts, and how its faults are found."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from ingest.completeness import ledger_rows
from ingest.consumer.periodic_work import Probe
from ingest.consumer.positions import Tolerance
from ingest.consumer.writers import RetryingWriter
from ingest.messages.explanations import Code, Explanation
from ingest.messages.message import KafkaMessage, TopicPartition
from ingest.store import ledger
from ingest.store.batch import OffsetGap
from ingest.store.ledger import Claim, FencedError
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.db.commands import run_command
from tests.db.ingested import (
    CHILD_SOURCE,
    TWIN_SOURCE,
    Ingested,
    claim_all,
    find_faults,
    list_ids,
    list_quarantined,
    query,
    read_counts,
)
from tests.messages import EXPIRED, SOURCE, WINDOW, make_message, make_value


def print_ledger_json() -> tuple[int, dict[str, Any]]:
    """Run `annals ledger --json`, and return its exit code and output."""
    ended = run_command("ledger", "--json", "--offline")
    return ended.code, json.loads(ended.out)


def run_on_own_thread(*words: str) -> None:
    """Run a command in a new thread, and so outside of the test's transaction."""

    def run() -> None:
        call_command(*words, stdout=StringIO())
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()


def update_ledger_row(change: str) -> None:
    with open_connection("test") as plain:
        assert plain.execute(change).rowcount == 1


def test_claim_of_new_partition_starts_at_first_offset_of_broker(ingested: Ingested) -> None:
    source = TopicPartition("a", "id", 3)
    with open_connection() as plain:
        assert ledger.claim_partition(plain, source, 42) == Claim(source, 1, 42, 0, False)
        assert ledger.claim_partition(plain, source, 99) == Claim(source, 2, 42, 0, False)
        again = TopicPartition("a", "made again", 3)
        assert ledger.claim_partition(plain, again, 0) == Claim(again, 1, 0, 0, False)


def test_fenced_consumer_writes_nothing(ingested: Ingested) -> None:
    """The consumer writes no rows, quarantined messages, search keys or counts."""
    ingested.write(make_value(id="a"))
    late = ingested.make_batch(make_value(id="late", data={"realtyCrmId": "late"}), b"late")
    newer = claim_all()
    with pytest.raises(FencedError):
        ingested.store(late)
    assert list_ids() == ["a"]
    assert list_quarantined() == []
    assert query("SELECT 1 FROM search_key") == []
    assert read_counts() == {"next_offset": 1, "read": 1, "stored": 1}
    ingested.claims = newer
    ingested.store(late)
    assert list_ids() == ["a", "late"]
    assert find_faults() == []


@pytest.mark.parametrize("start", [0, 2], ids=["behind", "ahead"])
def test_batch_that_does_not_begin_at_offset_of_the_ledger_writes_nothing(
    ingested: Ingested, start: int
) -> None:
    ingested.write(make_value(id="a"))
    ingested.next[SOURCE] = start
    with pytest.raises(FencedError):
        ingested.write(make_value(id="b"))
    assert list_ids() == ["a"]
    assert read_counts() == {"next_offset": 1, "read": 1, "stored": 1}


def test_batch_writes_nothing_when_consumer_lost_one_of_its_partitions(ingested: Ingested) -> None:
    with open_connection() as plain:
        ledger.claim_partition(plain, CHILD_SOURCE, 0)
    batch = ingested.make_batch(make_value(id="a"))
    ingested.fill(batch, make_value(id="t", productInstanceId="a"), source=CHILD_SOURCE)
    with pytest.raises(FencedError):
        ingested.store(batch)
    assert list_ids() == []
    assert read_counts() == {}


def test_claim_waits_for_the_running_write(ingested: Ingested) -> None:
    """So the new owner of the topic partition begins after the offsets that its former owner
    wrote."""
    batch = ingested.make_batch(make_value(id="a"))
    with ThreadPoolExecutor(1) as pool:
        with ingested.writer.connection.transaction():
            ingested.store(batch)
            claim = pool.submit(claim_all)
            time.sleep(0.3)
            assert not claim.done()
        assert claim.result(120)[SOURCE].next_offset == 1


def test_ledger_records_offset_gaps(ingested: Ingested) -> None:
    ingested.write(make_value(id="a"), gap=OffsetGap(0, 5, lost=False))
    ingested.write(make_value(id="b"), gap=OffsetGap(6, 16, lost=True))
    assert read_counts() == {"next_offset": 17, "read": 2, "stored": 2, "skipped": 5, "lost": 10}
    result = query("SELECT start_offset, end_offset, lost FROM ingest_gap ORDER BY 1")
    # Offsets of transaction markers are only counted.
    assert [tuple(row.values()) for row in result] == [(6, 16, True)]
    assert find_faults() == [
        "top-storage.export.product-instance[0]: 10 messages were deleted by the broker before"
        " they were read"
    ]


def test_ledger_command_reports_no_fault_when_counts_add_up(ingested: Ingested) -> None:
    ingested.write(
        make_value(id="a"), make_value(id="a"), b"bad", make_value(updatedAt="2001-01-01T00:00:00")
    )
    code, figures = print_ledger_json()
    assert (code, figures["ok"], figures["faults"]) == (0, True, [])
    assert figures["totals"] == {
        "read": 4,
        "stored": 1,
        "repeated": 1,
        "expired": 1,
        "quarantined": 1,
        "skipped": 0,
        "lost": 0,
        "lag": 0,
    }
    [own_figures] = [
        partition for partition in figures["partitions"] if partition["topic"] == SOURCE.topic
    ]
    assert (own_figures["firstOffset"], own_figures["nextOffset"], own_figures["current"]) == (
        0,
        4,
        True,
    )


def test_acknowledged_losses_do_not_hide_later_losses(ingested: Ingested) -> None:
    """The ledger reports only losses after the acknowledgement. It keeps the total and the
    reasons."""
    ingested.write(make_value(id="a"), gap=OffsetGap(0, 7, lost=True))
    page_text = find_faults()
    assert [item for item in page_text if "7 messages were deleted" in item] == page_text
    run_on_own_thread("ledger", "acknowledge", SOURCE.topic, "--why", "retention was too short")
    assert find_faults() == []
    with pytest.raises(CommandError, match="all lost messages are acknowledged already"):
        run_on_own_thread("ledger", "acknowledge", SOURCE.topic, "--why", "again")
    ingested.write(make_value(id="b"), gap=OffsetGap(8, 11, lost=True))
    [fault] = find_faults()
    assert "3 messages were deleted" in fault
    code, figures = print_ledger_json()
    [own_figures] = [
        partition for partition in figures["partitions"] if partition["topic"] == SOURCE.topic
    ]
    assert (code, own_figures["lost"], own_figures["lostAcknowledged"]) == (1, 10, 7)
    run_on_own_thread(*f"ledger acknowledge {SOURCE.topic} --partition 0 --why later".split())
    assert print_ledger_json()[0] == 0
    assert [row["why"] for row in query("SELECT why FROM ingest_gap ORDER BY start_offset")] == [
        "retention was too short",
        "later",
    ]


@pytest.mark.parametrize(
    "change, complaint",
    [
        ("UPDATE ingest_ledger SET stored = stored - 1 WHERE stored > 0", "2 read, but"),
        ("UPDATE ingest_ledger SET next_offset = next_offset + 1 WHERE read > 0", "to 2 are 3"),
        ("UPDATE ingest_ledger SET lost = 1, next_offset = 3 WHERE read > 0", "deleted by"),
        ("DELETE FROM ingest_quarantine", "counts 1 quarantined, the quarantine holds 0"),
    ],
)
def test_ledger_command_exits_1_when_counts_do_not_add_up(
    ingested: Ingested, change: str, complaint: str
) -> None:
    ingested.write(make_value(id="a"), b"bad")
    update_ledger_row(change)
    code, figures = print_ledger_json()
    assert (code, figures["ok"]) == (1, False)
    assert complaint in "".join(figures["faults"])


def test_recreated_topic_gets_a_new_ledger_row(ingested: Ingested) -> None:
    ingested.write(make_value(id="a"), make_value(id="b"))
    again = TopicPartition(SOURCE.topic, "made-again", 0)
    with open_connection() as plain:
        ingested.claims[again] = ledger.claim_partition(plain, again, 0)
    ingested.next[again] = 0
    ingested.write(make_value(id="a"), b"bad", source=again)
    assert read_counts(again) == {"next_offset": 2, "read": 2, "repeated": 1, "quarantined": 1}
    assert read_counts() == {"next_offset": 2, "read": 2, "stored": 2}
    current = {entry.topic_id: entry.current for entry in ledger_rows.load_entries()}
    assert (current["made-again"], current[SOURCE.topic_id]) == (True, False)
    assert find_faults() == []


def test_ledger_command_reads_ledger_and_quarantine_counts_at_one_moment(
    ingested: Ingested,
) -> None:
    """Otherwise the command would report a false fault while bad messages arrive."""
    stop = threading.Event()

    def write_bad_messages() -> None:
        while not stop.is_set():
            ingested.write(b"bad")

    pouring = threading.Thread(target=write_bad_messages)
    pouring.start()
    try:
        for _ in range(150):
            assert ledger_rows.find_faults(ledger_rows.load_entries()) == []
    finally:
        stop.set()
        pouring.join(120)
    assert read_counts()["quarantined"] > 20


def test_lag_is_end_offset_minus_next_offset(ingested: Ingested) -> None:
    ingested.writer.write(ingested.make_batch(make_value()), ingested.claims, {SOURCE: 51})
    with open_connection() as plain:
        ledger.record_heartbeat(plain, {ingested.claims[TWIN_SOURCE]: 7}, None)
    lags = {entry.topic: entry.lag for entry in ledger_rows.load_entries()}
    assert lags == {SOURCE.topic: 50, TWIN_SOURCE.topic: 7, CHILD_SOURCE.topic: None}


def test_heartbeat_skips_rows_locked_by_a_write(ingested: Ingested) -> None:
    """The heartbeat is recorded in the other rows."""
    claims = ingested.claims
    with open_connection() as writing, writing.transaction(force_rollback=True):
        writing.execute("UPDATE ingest_ledger SET read = read WHERE topic = %s", [SOURCE.topic])
        with open_connection() as plain:
            plain.execute("SET lock_timeout = '100ms'")
            ends = {claims[SOURCE]: 5, claims[TWIN_SOURCE]: None, claims[CHILD_SOURCE]: 7}
            ledger.record_heartbeat(plain, ends, time.monotonic())
    rows = query(
        "SELECT topic, high_watermark, end_known_at IS NOT NULL AS known,"
        " checked_at > updated_at AS beaten FROM ingest_ledger"
    )
    assert {row["topic"]: [*row.values()][1:] for row in rows} == {
        SOURCE.topic: [None, False, False],
        TWIN_SOURCE.topic: [None, False, True],
        CHILD_SOURCE.topic: [7, True, True],
    }


def test_recreated_topic_stays_current_when_heartbeat_of_old_topic_is_written_late(
    ingested: Ingested,
) -> None:
    """A heartbeat for the old topic waited for the database. Meanwhile the topic was recreated and
    claimed."""
    claims, beat_at = ingested.claims, time.monotonic()
    time.sleep(0.1)
    new = TopicPartition(SOURCE.topic, "made-again", 0)
    with open_connection() as plain:
        ledger.claim_partition(plain, new, 0)
        ledger.record_heartbeat(plain, {claims[SOURCE]: 5}, None, beat_at)
        time.sleep(0.01)  # the old consumer continues, but no broker answers it
        ledger.record_heartbeat(plain, {claims[SOURCE]: None}, None, answered=())
    result = {
        entry.topic_id: entry for entry in ledger_rows.load_entries() if entry.topic == SOURCE.topic
    }
    assert [result[item].current for item in ("made-again", SOURCE.topic_id)] == [True, False]
    [old] = query("SELECT high_watermark FROM ingest_ledger WHERE topic_id = %s", SOURCE.topic_id)
    assert old["high_watermark"] == 5


def test_fenced_consumer_records_neither_heartbeat_nor_halt_nor_resume(ingested: Ingested) -> None:
    old = ingested.claims[SOURCE]
    claim_all()
    with open_connection() as plain:
        ledger.record_heartbeat(plain, {old: 7}, None)
        ledger.record_halts(plain, {old: Explanation(Code.HALTED_BEFORE)})
        ledger.record_resume(plain, old, 99)
    [row] = query(
        "SELECT high_watermark, halted_at, resume_until FROM ingest_ledger WHERE topic = %s",
        SOURCE.topic,
    )
    assert [*row.values()] == [None, None, None]


def test_partition_is_halted_and_resumed(ingested: Ingested) -> None:
    claim = ingested.claims[SOURCE]
    with open_connection() as plain:
        ledger.record_halts(plain, {claim: Explanation(Code.BAD_IN_A_ROW, n=5)})
        [entry] = [entry for entry in ledger_rows.load_entries() if entry.topic == SOURCE.topic]
        assert entry.state == "halted: 5 bad messages in a row"
        assert ledger.claim_partition(plain, SOURCE, 0).halted
        claim = claim_all()[SOURCE]
        ledger.record_resume(plain, claim, 30)
        again = ledger.claim_partition(plain, SOURCE, 0)
    assert (again.halted, again.resume_until) == (False, 30)


TOLERANCE = Tolerance(consecutive=50, ratio=0.5, window=100)


def run_probe(ahead: str, claim: Claim) -> int | None:
    """Probe a topic partition that is halted at offset 10, as a consumer does.

    Args:
        ahead: The next messages: good (.), bad (x) or expired (e).

    Returns:
        The offset from which on bad messages can halt the resumed topic partition again, or None
        if the topic partition stays halted.
    """
    bodies = {".": make_value(), "x": b"bad", "e": EXPIRED}
    present: list[KafkaMessage] = [
        make_message(bodies[item], 10 + n) for n, item in enumerate(ahead)
    ]

    def peek(_: Any, start: int, count: int) -> list[KafkaMessage]:
        return [item for item in present if item.offset >= start][:count]

    bounds = {SOURCE: (0, 10 + len(ahead))}
    return Probe(open_connection, peek, lambda _: bounds, TOLERANCE)(
        (SOURCE.topic, 0), claim, 10, WINDOW
    )


@pytest.mark.parametrize(
    "ahead, until",
    [
        ("", None),
        ("x" * 100, None),
        ("x" * 10 + "." * 10, None),
        ("x" * 9 + "e" * 11, 10),
        ("." * 5, 10),
        ("." * 15 + "x" * 500, 10),  # the later bad messages are for the usual limits
        # The producer is fixed; the bad messages before go to quarantine.
        (
            "x" * 100 + "." * 20,
            130,
        ),
    ],
)
def test_halted_partition_resumes_when_enough_of_its_next_messages_are_good(
    ingested: Ingested, ahead: str, until: int | None
) -> None:
    assert run_probe(ahead, ingested.claims[SOURCE]) == until


def test_halted_partition_resumes_by_command(ingested: Ingested) -> None:
    claim = ingested.claims[SOURCE]
    with open_connection() as plain:
        ledger.record_halts(plain, {claim: Explanation(Code.HALTED_BEFORE)})
        ledger.record_heartbeat(plain, {claim: 70}, None)
    run_on_own_thread("quarantine", "resume", SOURCE.topic)
    until = run_probe("x" * 60, claim)
    assert until is not None
    assert until >= 70


def test_halted_partition_resumes_by_command_when_its_end_is_not_known(ingested: Ingested) -> None:
    claim = ingested.claims[SOURCE]
    with open_connection() as plain:
        ledger.record_halts(plain, {claim: Explanation(Code.HALTED_BEFORE)})
        run_on_own_thread("quarantine", "resume", SOURCE.topic)
        assert ledger.load_resume_until(plain, claim) == claim.next_offset + 1


def test_probe_of_halted_partition_has_no_result_when_database_is_unreachable(
    ingested: Ingested,
) -> None:
    def raise_away() -> ledger.Connection:
        raise psycopg.OperationalError("away")

    query = Probe(raise_away, lambda *_: [], lambda _: {}, TOLERANCE)
    assert query((SOURCE.topic, 0), ingested.claims[SOURCE], 10, WINDOW) is None


def test_writer_still_makes_its_first_attempt_when_told_to_stop_waiting(ingested: Ingested) -> None:
    """`stop_waiting()` only ends the wait before a repeated attempt."""
    writer = RetryingWriter(BatchWriter(open_connection))
    writer.stop_waiting()
    writer.write(ingested.make_batch(make_value(id="a")), ingested.claims, {})
    writer.batch_writer.close()
    assert list_ids() == ["a"]
