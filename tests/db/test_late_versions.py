"""The late list of the feed: versions that are stored after a page of a feed passed their
moments."""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import msgspec
import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from annals.access.models import JournalEntry
from history import timeline
from history.completeness import complete_to
from history.kinds.entities import BY_NAME, ENTITIES, EntityKind, get_root
from history.models import FieldLabel
from history.retention.packing import pack_day
from history.store import late_list
from history.store.days.window import Window
from history.store.late_list import LateCursor, LateListGoneError, LateVersion
from history.timeline import BadParameterError, ChangesPage, ChangesQuery, VersionFilters
from history.timeline.query import TimelineOrder
from ingest.store.ledger import FencedError
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.db.calls import check_error, read_data
from tests.db.ingested import (
    CHILD_SOURCE,
    Ingested,
    claim_all,
    empty_ingest_tables,
    retry_quarantined,
)
from tests.db.partitioned import connect_plainly
from tests.db.store import HOST, T0, Store, minute
from tests.messages import make_value

FEED = ChangesQuery(
    filters=VersionFilters(since=minute(-600)),
    order=TimelineOrder.ASC,
    complete_to=minute(60),
)


def make_version_message(id: str, version: int, minutes: float, **more: Any) -> bytes:
    """Return the message of a version that is dated `minutes` minutes after T0."""
    moment = minute(minutes).replace(tzinfo=None).isoformat()
    return make_value(id=id, version=version, updatedAt=moment, **more)


def read_page(query: ChangesQuery = FEED, **changes: Any) -> ChangesPage:
    return timeline.fetch_changes_page(HOST, replace(query, **changes))


def list_versions(page: ChangesPage) -> list[tuple[str, int]]:
    return [(version.id, version.version) for version in page.versions]


def list_late(token: str | None, query: ChangesQuery = FEED) -> list[tuple[str, int]]:
    """Return the versions on all pages of the late list."""
    versions = []
    while True:
        page = read_page(query, late_since=token, page_size=2)
        versions += list_versions(page)
        token = page.next_token
        if page.is_complete and not page.versions:
            return versions


def test_version_stored_after_the_feed_passed_its_moment_is_in_the_late_list_once(
    ingested: Ingested,
) -> None:
    ingested.write(make_version_message("A", 0, 1), make_version_message("A", 2, 3))
    first = read_page()
    assert list_versions(first) == [("A", 0), ("A", 2)]
    ingested.write(make_version_message("A", 1, 2), make_version_message("B", 0, 70))
    assert list_versions(read_page(page_token=first.next_token)) == []
    late = read_page(late_since=first.next_token)
    assert list_versions(late) == [("A", 1)]
    assert late.versions[0].previous_version == 0
    assert list_late(late.next_token) == []
    after = read_page(page_token=late.next_token, complete_to=minute(80))
    assert list_versions(after) == [("B", 0)]
    assert list_late(after.next_token) == []


def test_late_list_of_a_feed_has_versions_stored_since_first_page_of_the_feed_was_read(
    ingested: Ingested,
) -> None:
    first = read_page()
    ingested.write(make_version_message("A", 0, 1))
    second = read_page(page_token=first.next_token, complete_to=minute(70))
    ingested.write(make_version_message("B", 0, 2))
    assert list_late(second.next_token) == [("A", 0), ("B", 0)]


def test_version_that_the_feed_will_reach_is_not_in_the_late_list(ingested: Ingested) -> None:
    ingested.write(*(make_version_message(f"A{number}", 0, number) for number in range(3)))
    read_page()  # a faster program has passed all moments
    slow = read_page(page_size=1)
    ingested.write(make_version_message("B", 0, 0), make_version_message("C", 0, 1.5))
    assert list_versions(slow) == [("A0", 0)]
    # B has the moment of A0 and a higher id, so the slow program will still reach it.
    assert list_late(slow.next_token) == []
    rest = read_page(page_token=slow.next_token)
    assert list_versions(rest) == [("B", 0), ("A1", 0), ("C", 0), ("A2", 0)]


def test_version_before_start_of_the_feed_is_not_in_the_late_list(ingested: Ingested) -> None:
    token = read_page().next_token
    ingested.write(make_version_message("A", 0, -601), make_version_message("B", 0, -600))
    assert list_late(token) == [("B", 0)]


def test_late_list_stays_empty_while_no_program_reads_a_feed(ingested: Ingested) -> None:
    ingested.write(make_version_message("A", 0, 1))
    read_page(order=TimelineOrder.DESC, filters=replace(FEED.filters, author="m.ivanov"))
    read_page(filters=replace(FEED.filters, until=minute(60), author="m.ivanov"))
    ingested.write(make_version_message("A", 1, 2))
    assert late_list.read_state().horizon is None
    with connect_plainly() as plain:
        assert plain.execute("SELECT FROM late_batch").rowcount == 0


def test_repeated_and_quarantined_versions_are_not_in_the_late_list(ingested: Ingested) -> None:
    ingested.write(make_version_message("A", 0, 1))
    token = read_page().next_token
    ingested.write(
        make_version_message("A", 0, 1),
        make_version_message("A", 1, 2),
        make_version_message("A", 1, 2),
        make_version_message("A", 2, 3, data={"number": "@"}).replace(b'"@"', b"1e400000"),
    )
    assert list_late(token) == [("A", 1)]


def test_version_stored_from_quarantine_is_in_the_late_list(ingested: Ingested) -> None:
    token = read_page().next_token
    day_before = Window((T0 - timedelta(days=80)).date(), (T0 - timedelta(days=1)).date())
    # The window ends before the day of the version, so the message goes to quarantine.
    ingested.write(make_version_message("A", 0, 1), window=day_before)
    assert list_late(token) == []
    with open_connection() as plain:
        assert retry_quarantined(plain) == {"stored": 1}
    assert list_late(token) == [("A", 0)]


def test_late_versions_are_listed_after_their_day_was_packed(ingested: Ingested) -> None:
    ingested.write(make_version_message("A", 0, 1))
    token = read_page().next_token
    ingested.write(
        make_version_message("A", 2, 3),
        make_version_message("A", 1, 2),
        make_version_message("B", 0, 2),
    )
    with connect_plainly() as plain:
        pack_day(plain, get_root(), T0.date())
    assert list_late(token) == [("A", 2), ("A", 1), ("B", 0)]
    filtered = replace(FEED, filters=replace(FEED.filters, author="nobody"))
    token = read_page(filtered).next_token
    ingested.write(
        make_version_message("B", 1, 2), make_version_message("B", 2, 3, author="nobody")
    )
    assert list_late(token, filtered) == [("B", 2)]


def test_late_list_names_document_with_damaged_late_version(ingested: Ingested) -> None:
    token = read_page().next_token
    ingested.write(
        make_version_message("A", 0, 1),
        make_version_message("A", 1, 2),
        make_version_message("B", 0, 1),
    )
    table = get_root().table
    with connect_plainly() as plain:
        pack_day(plain, get_root(), T0.date())
        plain.execute(f"UPDATE {table} SET client_id = 'other' WHERE id = 'A'")
    late = read_page(late_since=token)
    assert list_versions(late) == [("B", 0)]
    assert [document.id for document in late.damaged] == ["A"]


def test_late_list_leaves_out_versions_that_were_removed(ingested: Ingested) -> None:
    token = read_page().next_token
    ingested.write(make_version_message("A", 0, 1), make_version_message("B", 0, -600))
    with connect_plainly() as plain:
        plain.execute(f"DELETE FROM {get_root().table} WHERE id = 'A'")
    assert list_late(token) == [("B", 0)]


def test_late_list_of_a_feed_of_one_kind_has_only_versions_of_that_kind(ingested: Ingested) -> None:
    feeds = [replace(FEED, entity=entity) for entity in (get_root(), BY_NAME["product-task"])]
    tokens = [read_page(feed).next_token for feed in feeds]
    ingested.write(make_version_message("A", 0, 1))
    ingested.write(make_version_message("T", 0, 1, productInstanceId="A"), source=CHILD_SOURCE)
    assert [list_late(token, feed) for token, feed in zip(tokens, feeds, strict=True)] == [
        [("A", 0)],
        [("T", 0)],
    ]


def test_path_filter_of_the_feed_applies_to_the_late_list(ingested: Ingested) -> None:
    feed = replace(FEED, filters=replace(FEED.filters, path="/rate"))
    token = read_page(feed).next_token
    ingested.write(
        *(
            make_version_message("A", number, number, data={"rate": number // 2})
            for number in range(5)
        )
    )
    assert list_late(token, feed) == [("A", 2), ("A", 4)]


def test_many_late_versions_are_stored_in_few_rows_and_all_listed(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_list, "BATCH_VERSIONS", 7)
    monkeypatch.setattr(late_list, "BATCHES_PER_READ", 2)
    token = read_page().next_token
    ingested.write(*(make_version_message(f"A{number:02}", 0, number % 5) for number in range(40)))
    assert list_late(token) == [(f"A{number:02}", 0) for number in range(40)]
    first = late_list.read_state().end.position - 6
    assert [len(batch.ids) for batch in late_list.fetch_batches(LateCursor(first, 0))] == [7, 7]


def test_late_list_has_the_order_of_commits_when_writers_overlap(
    tables: None,
) -> None:
    start = late_list.read_state().end
    with connect_plainly() as early, connect_plainly() as late, ThreadPoolExecutor() as pool:
        with early.transaction(force_rollback=True):
            late_list.add_late_versions(early, [LateVersion("product-instance", "gone", 0, 0)])
            waiting = pool.submit(note_alone, late, "A")
            wait_for_lock()
            assert late_list.fetch_batches(start) == []
        waiting.result()
        with early.transaction():
            early.execute("SELECT pg_current_xact_id()")  # the lower transaction id
            note_alone(late, "B")
            late_list.add_late_versions(early, [LateVersion("product-instance", "C", 0, 0)])
            assert [batch.ids for batch in late_list.fetch_batches(start)] == [["A"], ["B"]]
    batches = late_list.fetch_batches(start)
    assert [batch.ids for batch in batches] == [["A"], ["B"], ["C"]]
    assert [batch.position - start.position for batch in batches] == [0, 1, 2]


def test_feed_page_waits_until_writer_that_read_the_old_horizon_has_committed(
    ingested: Ingested,
) -> None:
    ingested.write(make_version_message("A", 0, 1))
    with connect_plainly() as writer, ThreadPoolExecutor() as pool:
        with writer.transaction():
            writer.execute(
                f"INSERT INTO {get_root().table} SELECT id, 1, data, updated_at, client_id, author,"
                f" type FROM {get_root().table}"
            )
            assert late_list.lock_horizon(writer) is None
            page = pool.submit(read_in_thread)
            wait_for_lock()
            assert not page.done()
        assert list_versions(page.result()) == [("A", 0), ("A", 1)]


def test_feed_page_ends_at_the_horizon_when_a_writer_does_not_commit(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(make_version_message("A", 0, 1), make_version_message("A", 1, 65))
    first = read_page()
    with connect_plainly() as frozen:
        with frozen.transaction():
            assert late_list.lock_horizon(frozen) is not None
            ingested.write(make_version_message("A", 2, 64))  # other writers continue meanwhile
            stopped = read_page(page_token=first.next_token, complete_to=minute(70))
            assert (list_versions(stopped), stopped.span[1]) == ([], minute(60))
        rest = read_page(page_token=stopped.next_token, complete_to=minute(70))
    assert list_versions(rest) == [("A", 2), ("A", 1)]
    assert list_late(rest.next_token) == []


def test_killed_writer_leaves_no_late_versions_and_no_lock(ingested: Ingested) -> None:
    token = read_page().next_token
    start = late_list.read_state().end
    with connect_plainly() as killed, connect_plainly() as killer:
        killed.execute("BEGIN")
        late_list.lock_horizon(killed)
        late_list.add_late_versions(killed, [LateVersion("product-instance", "A", 0, 0)])
        killer.execute(
            "SELECT pg_terminate_backend(%s::int, 10000::bigint)", [killed.info.backend_pid]
        )
        with pytest.raises(psycopg.Error):
            killed.execute("COMMIT")
    ingested.write(make_version_message("B", 0, 1))
    assert list_late(token) == [("B", 0)]
    assert late_list.read_state().end.position == start.position + 1
    assert read_page(complete_to=minute(90)).span[1] == minute(90)


def test_refused_batch_adds_nothing_to_the_late_list(ingested: Ingested) -> None:
    token = read_page().next_token
    claims = ingested.claims
    ingested.claim()
    ingested.claims = claims  # another consumer owns the topic partition now
    with pytest.raises(FencedError):
        ingested.write(make_version_message("A", 0, 1))
    assert list_late(token) == []


def test_late_list_refuses_token_if_late_versions_after_the_token_were_removed_as_too_old(
    ingested: Ingested,
) -> None:
    token = read_page().next_token
    ingested.write(make_version_message("A", 0, 1))
    late_token = read_page(late_since=token).next_token
    ingested.write(make_version_message("B", 0, 1))
    with connect_plainly() as plain:
        plain.execute(
            "UPDATE late_batch SET noted_at = now() - interval '91 days' WHERE"
            " ids = ARRAY['A'::varchar]"
        )
        before = datetime.now(UTC) - timedelta(days=90)
        assert late_list.remove_old_batches(plain, before) == 1
        assert late_list.remove_old_batches(plain, before) == 0
    with pytest.raises(BadParameterError, match="lateSince: is too old"):
        read_page(late_since=token)
    assert list_late(late_token) == [("B", 0)]


def test_token_of_the_late_list_is_refused_after_database_was_restored_to_earlier_state(
    tables: None,
) -> None:
    end = late_list.read_state().end
    assert late_list.fetch_batches(end) == []
    with pytest.raises(LateListGoneError):
        late_list.fetch_batches(LateCursor(end.position + 1, 0))


@pytest.fixture
def ingested(tables: None) -> Iterator[Ingested]:
    """Yield a writer. The test runs outside a transaction, so that each read of a feed commits.

    A read of a feed locks the horizon until the transaction of the read ends. A writer waits for
    this lock.
    """
    empty_ingest_tables()
    ingested = Ingested(BatchWriter(open_connection), claim_all())
    yield ingested
    ingested.writer.close()
    empty_ingest_tables()


def note_alone(plain: psycopg.Connection[Any], id: str) -> None:
    with plain.transaction():
        late_list.add_late_versions(plain, [LateVersion("product-instance", id, 0, 0)])


def read_in_thread() -> ChangesPage:
    try:
        return read_page()
    finally:
        connection.close()


def wait_for_lock() -> None:
    """Wait until a session of the database waits for a lock."""
    with connect_plainly() as plain:
        for _ in range(1_000):
            if plain.execute(
                "SELECT FROM pg_stat_activity WHERE datname = current_database()"
                " AND wait_event_type = 'Lock'"
            ).rowcount:
                return
            time.sleep(0.01)
    raise AssertionError("no session waits for a lock")


# Tests of the API. They note and read late versions on one connection, in one transaction.


def note_late_versions(*versions: tuple[EntityKind, str, int, float]) -> None:
    """Add versions to the late list, as a writer does; moments are in minutes after T0."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    late_list.add_late_versions(
        connection.connection,
        [
            LateVersion(
                entity.name, id, (minute(moment) - epoch) // timedelta(microseconds=1), version
            )
            for entity, id, version, moment in versions
        ],
    )


@pytest.fixture
def fetch_feed_page(
    store: Store, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Return a function that requests a page of a feed, with keyword arguments as query parameters.

    The store reports that it is complete up to the moment one hour after T0.
    """
    state = replace(complete_to.read_completeness(ENTITIES), complete_to=minute(60))
    monkeypatch.setattr(complete_to, "read_completeness", lambda _: state)
    begin = {"order": "asc", "from": minute(-600).isoformat()}

    def ask_feed(**parameters: Any) -> Any:
        query = {**begin, **parameters}
        return auditor.get(
            "/api/v1/changes", {name: value for name, value in query.items() if value is not None}
        )

    return ask_feed


def test_get_changes_gives_late_versions_with_application_id_and_title(
    store: Store, fetch_feed_page: Callable[..., Any]
) -> None:
    store.add("A1", 0, {"name": "Loan"}, 0)
    token = read_data(fetch_feed_page())["nextPageToken"]
    store.add("T1", 0, {"stage": 1}, 1, entity="product-task", application="A1")
    note_late_versions((BY_NAME["product-task"], "T1", 0, 1))
    answer = read_data(fetch_feed_page(lateSince=token))
    [entry] = answer["history"]
    assert (entry["id"], entry["applicationId"], entry["applicationTitle"]) == ("T1", "A1", "Loan")
    assert answer["complete"] is True
    assert datetime.fromisoformat(answer["to"]) == minute(60)
    last = read_data(fetch_feed_page(lateSince=answer["nextPageToken"]))
    assert (last["history"], last["complete"]) == ([], True)


@pytest.mark.parametrize(
    "parameters",
    [
        {"order": "desc", "author": "m.ivanov"},
        {"to": minute(10).isoformat()},
        {"from": minute(-599).isoformat()},
        {"from": None},
        {"author": "m.ivanov"},
        {"clientId": "top-crm"},
        {"type": "UPDATE"},
        {"path": "/rate"},
        {"entity": "product-task"},
        {"lateSince": ""},
        {"lateSince": "v1:"},
        {"lateSince": "v1:another"},
        {"lateSince": "x" * 7001},
    ],
    ids=repr,
)
def test_wrong_parameter_late_since_is_refused_and_named(
    store: Store, fetch_feed_page: Callable[..., Any], parameters: dict[str, Any]
) -> None:
    token = read_data(fetch_feed_page())["nextPageToken"]
    refused = check_error(
        fetch_feed_page(**{"lateSince": token, **parameters}), 400, "bad_parameter"
    )
    assert refused["parameter"] == "lateSince"


def test_damaged_token_of_the_late_list_is_refused(
    store: Store, fetch_feed_page: Callable[..., Any]
) -> None:
    token = read_data(fetch_feed_page())["nextPageToken"]
    for index in (3, len(token) // 3, len(token) // 2, len(token) - 1):
        letter = "A" if token[index] != "A" else "B"
        damaged = f"{token[:index]}{letter}{token[index + 1 :]}"
        refused = check_error(fetch_feed_page(lateSince=damaged), 400, "bad_parameter")
        assert refused["parameter"] == "lateSince"
    for damaged in (token[:-1], f"{token}A", token.removeprefix("v1:"), f"{token} "):
        check_error(fetch_feed_page(lateSince=damaged), 400, "bad_parameter")


def test_page_token_together_with_late_since_is_refused(
    store: Store, fetch_feed_page: Callable[..., Any]
) -> None:
    token = read_data(fetch_feed_page())["nextPageToken"]
    refused = check_error(fetch_feed_page(lateSince=token, pageToken=token), 400, "bad_parameter")
    assert refused["parameter"] == "lateSince"
    bounded = read_data(fetch_feed_page(to=minute(120).isoformat(), author="m.ivanov"))[
        "nextPageToken"
    ]
    check_error(fetch_feed_page(lateSince=bounded), 400, "bad_parameter")


def open_only_b1(_user: object, application: Any) -> bool:
    return bool(application.id == "B1")


def test_late_versions_of_hidden_applications_are_left_out(
    store: Store, fetch_feed_page: Callable[..., Any], settings: Any
) -> None:
    rule = f"{__name__}.open_only_b1"
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=rule)
    token = read_data(fetch_feed_page())["nextPageToken"]
    for id in ("A1", "B1"):
        store.add(id, 0, {"name": id}, 1)
    store.add("T1", 0, {"stage": 1}, 1, entity="product-task", application="A1")
    note_late_versions(
        (get_root(), "A1", 0, 1), (get_root(), "B1", 0, 1), (BY_NAME["product-task"], "T1", 0, 1)
    )
    JournalEntry.objects.all().delete()
    answer = read_data(fetch_feed_page(lateSince=token))
    assert [entry["id"] for entry in answer["history"]] == ["B1"]
    assert "A1" not in str(answer)
    [entry] = JournalEntry.objects.all()
    assert entry.reason == "need-to-know: 1 left out of the list"
    assert (entry.action, entry.outcome) == ("search", "shown")


def test_late_versions_are_masked(store: Store, fetch_feed_page: Callable[..., Any]) -> None:
    FieldLabel.objects.create(entity="product-instance", path="/passport", sensitive=True)
    token = read_data(fetch_feed_page())["nextPageToken"]
    store.add("A1", 0, {"passport": "4509 123456"}, 1)
    note_late_versions((get_root(), "A1", 0, 1))
    [entry] = read_data(fetch_feed_page(lateSince=token, include="entity"))["history"]
    assert entry["entity"]["passport"].startswith("masked:")


def test_role_ops_may_not_read_late_versions(
    store: Store, fetch_feed_page: Callable[..., Any], client: Client
) -> None:
    token = read_data(fetch_feed_page())["nextPageToken"]
    client.force_login(User.objects.get(username="ops"))
    check_error(fetch_feed_page(lateSince=token), 403, "no_permission")


def test_changes_command_prints_late_versions_for_token_of_the_feed(
    fetch_feed_page: Callable[..., Any], store: Store
) -> None:
    def run(*words: str) -> tuple[list[str], dict[str, str]]:
        out, err = StringIO(), StringIO()
        begin = ("--from", minute(-600).isoformat(), "--order", "asc", "--json")
        call_command("changes", *begin, *words, stdout=out, stderr=err)
        entries = [json.loads(line) for line in out.getvalue().splitlines()]
        tokens = dict(re.findall(r"--(late-since|page-token) (v1:\S+)", err.getvalue()))
        return [f"{entry['id']} {entry['version']}" for entry in entries], tokens

    store.add("A1", 1, {"rate": 1}, 1)
    entries, tokens = run()
    assert entries == ["A1 1"]
    store.add("A1", 0, {"rate": 0}, 0)
    note_late_versions((get_root(), "A1", 0, 0))
    entries, late_tokens = run("--late-since", tokens["late-since"])
    assert entries == ["A1 0"]
    assert run("--late-since", late_tokens["late-since"])[0] == []
    assert run("--page-token", late_tokens["page-token"])[0] == []
    with pytest.raises(CommandError, match="--late-since is not a token"):
        run("--late-since", "v1:other")
