"""`annals search index`: a search then also finds the versions that were stored before a business
key was declared."""

import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection

from history import timeline
from history.kinds.entities import BY_NAME, ENTITIES
from history.models import SearchKey
from history.retention import search_keys
from history.store.search_index import children, keys
from ingest.messages.message import KafkaMessage
from tests.db.ingested import CHILD_SOURCE, Ingested, query
from tests.db.partitioned import connect_plainly
from tests.db.store import HOST, T0, Store, minute
from tests.messages import make_value

PERSON, REALTY = "participant-role", "realty-info"


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the backfill of a small partition take several transactions."""
    monkeypatch.setattr(search_keys, "PAGES_AT_ONCE", 1)


def run_search_command(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, int]:
    capsys.readouterr()
    call_command("search", "index", "--json", *options)
    counts: dict[str, int] = json.loads(capsys.readouterr().out)
    # Earlier tests may have left empty pages in partitions of other days.
    assert counts.pop("partitions") >= 4
    return counts


def find_ids(text: str) -> list[str]:
    return [item.id for item in timeline.search(HOST, text).results]


@pytest.fixture
def documents_without_keys(store: Store) -> Store:
    """Store documents of two days without search keys."""
    store.add("A1", 0, {"number": "N1", "encumbrance": {"submissionId": "S1"}}, 0)
    store.add("A1", 1, {"number": "N1", "submissionId": 17}, -24 * 60)
    store.add("P1", 0, {"clientId": "777"}, 1, entity=PERSON)
    store.add("H1", 0, {"realtyCrmId": "CRM-1", "encumbrance": None}, 2, entity=REALTY)
    store.add("H2", 0, {"encumbrance": {"submissionId": "S2"}}, 2, entity=REALTY)
    store.add("T1", 0, {"clientId": "no key of a task"}, 2, entity="product-task")
    return store


@pytest.mark.plain_only("sessions on the nodes do not see the test's open transaction")
def test_backfill_indexes_every_key_of_every_kind(
    documents_without_keys: Store, capsys: Any
) -> None:
    assert find_ids("777") == []
    assert run_search_command(capsys) == {"rows": 5, "keys": 7}
    for text in ("N1", "S1", "17", "777", "CRM-1", "S2"):
        assert find_ids(text) == ["A1"], text
    assert find_ids("no key of a task") == []
    days = SearchKey.objects.filter(value="N1").values_list("day", flat=True)
    assert list(days) == [T0.date()]


@pytest.mark.plain_only("sessions on the nodes do not see the test's open transaction")
def test_backfill_stores_same_keys_as_ingest(documents_without_keys: Store, capsys: Any) -> None:
    """Some documents are not objects, contain NUL, or have values that cannot be keys."""
    documents = [
        "null",
        "[]",
        '"text"',
        "17",
        '{"number": null}',
        '{"number": true}',
        '{"number": 1.5}',
        '{"number": ""}',
        '{"number": "' + "x" * 101 + '"}',
        '{"number": "x", "encumbrance": 1}',
        '{"encumbrance": {"submissionId": {"a": 1}}, "realtyCrmId": 12345678901234567890}',
        '"{\\"number\\":\\"n\\\\u0000\\",\\"realtyCrmId\\":\\"with NUL\\"}"',
    ]
    expected = keys.NewSearchKeys()
    for version, text in enumerate(documents):
        documents_without_keys.add("B1", version, text, version)
    with connection.cursor() as cursor:
        cursor.execute("SELECT version, data::text FROM product_instance_aud WHERE id = 'B1'")
        for version, text in cursor.fetchall():
            moment = int(minute(version).timestamp()) * 1_000_000
            data = text.encode()
            record = keys.Record("product-instance", "B1", version, 1, moment, "", None, None, data)
            expected.add_record(record)
    run_search_command(capsys)
    by_command = SearchKey.objects.filter(id="B1").values_list("value", "name", "entity", "id")
    assert sorted(by_command) == [row.key for row in expected.list_rows()]
    assert {row.key.value for row in expected.list_rows()} == {
        "x",
        "12345678901234567890",
        "with NUL",
    }


@pytest.mark.plain_only("a cluster lists children")
def test_search_index_command_adds_no_search_keys_for_children_on_a_single_server(
    ingested: Ingested,
) -> None:
    ingested.write(make_value(id="t1", productInstanceId="a1"), source=CHILD_SOURCE)
    call_command("search", "index", stdout=io.StringIO())
    assert query("SELECT id FROM search_key WHERE name = %s", children.KEY_NAME) == []
    assert query("SELECT id FROM search_key WHERE first_day IS NOT NULL") == []
    assert query("SELECT id FROM django_migrations WHERE name = %s", children.MARK) == []


@pytest.mark.plain_only("sessions on the nodes do not see the test's open transaction")
def test_search_index_can_be_rebuilt_after_its_keys_were_deleted(
    documents_without_keys: Store, capsys: Any
) -> None:
    run_search_command(capsys)
    SearchKey.objects.all().delete()
    assert run_search_command(capsys) == {"rows": 5, "keys": 7}
    assert find_ids("777") == ["A1"]


@pytest.mark.plain_only("sessions on the nodes do not see the test's open transaction")
def test_backfill_indexes_key_that_was_declared_after_storing(
    documents_without_keys: Store, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_search_command(capsys) == {"rows": 5, "keys": 7}
    task = BY_NAME["product-task"]
    declared = replace(task, search=(("taskClient", "/clientId"),))
    monkeypatch.setattr(
        search_keys, "ENTITIES", (*(e for e in ENTITIES if e is not task), declared)
    )
    monkeypatch.setitem(keys.BY_NAME, task.name, declared)
    monkeypatch.setitem(keys.LOOKUPS, task.name, keys._make_lookup(("/clientId",)))
    assert run_search_command(capsys) == {"rows": 6, "keys": 8}
    assert SearchKey.objects.get(name="taskClient").id == "T1"


@pytest.mark.plain_only("sessions on the nodes do not see the test's open transaction")
def test_search_keys_of_interrupted_backfill_are_kept(
    documents_without_keys: Store, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection fails in the middle of a partition. The next run reads the whole partition
    again."""
    for version in range(2, 400):
        documents_without_keys.add(
            "A1", version, {"number": f"N{version}", "text": "x" * 200}, version
        )
    plain, remaining = search_keys._index_pages, [3]

    def index(*args: Any) -> Any:
        remaining[0] -= 1
        if remaining[0] < 0:
            raise OperationalError("server closed the connection")
        return plain(*args)

    with monkeypatch.context() as patch:
        patch.setattr(search_keys, "_index_pages", index)
        with pytest.raises(CommandError, match="The command ended after"):
            run_search_command(capsys)
    first = SearchKey.objects.count()
    assert 0 < first < 398
    assert run_search_command(capsys)["rows"] == 403
    assert SearchKey.objects.filter(name="number").count() == 399


@pytest.mark.plain_only("sessions on the nodes do not see the test's open transaction")
def test_backfill_continues_when_a_day_is_dropped_meanwhile(
    documents_without_keys: Store, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = search_keys.list_targets

    def list_targets() -> list[search_keys.BackfillTarget]:
        result = plain()
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE participant_role_aud_{T0:%Y%m%d}")
        return result

    monkeypatch.setattr("history.retention.search_keys.list_targets", list_targets)
    assert run_search_command(capsys)["rows"] == 4


def test_backfill_and_consumer_can_write_same_keys_at_once(ingested: Ingested) -> None:
    """Both write the search keys of the same documents repeatedly. Neither of them fails, and
    afterwards each document has one search key."""

    def make_bodies(version: int) -> list[KafkaMessage | bytes]:
        return [
            make_value(id=f"{n:03}", version=version, data={"number": f"N{n % 40}", "x": "y" * 300})
            for n in range(200)
        ]

    ingested.write(*make_bodies(0))
    with connect_plainly() as plain:
        plain.execute("DELETE FROM search_key")

    def index() -> int:
        try:
            return sum(
                step.rows
                for _ in range(6)
                for target in search_keys.list_targets()
                for step in search_keys.backfill_target(target)
            )
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(index)
        for version in range(1, 15):
            ingested.write(*make_bodies(version))
        assert running.result(timeout=300) >= 6 * 200
    assert len(query("SELECT 1 FROM search_key")) == 200


@pytest.mark.plain_only("on a cluster the writer waits on a node")
def test_backfill_waits_for_consumer_that_has_locked_a_key(ingested: Ingested) -> None:
    """The consumer has written the key, and has not committed yet."""
    ingested.write(make_value(id="a", data={"number": "N1"}))

    def index() -> int:
        try:
            return sum(
                s.keys for t in search_keys.list_targets() for s in search_keys.backfill_target(t)
            )
        finally:
            connection.close()

    with connect_plainly() as plain, ThreadPoolExecutor(1) as pool:
        with plain.transaction():
            plain.execute("UPDATE search_key SET day = day - 1")
            running = pool.submit(index)
            waiting = (
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'"
            )
            while not query(waiting):
                assert not running.done()
        assert running.result(timeout=120) == 1
    [row] = query("SELECT day FROM search_key")
    assert row["day"] >= (T0 - timedelta(days=1)).date()
