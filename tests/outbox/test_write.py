"""record() stores versions in the transaction of the change, and numbers them without gaps."""

import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test import override_settings

import outbox
from ingest.messages.decode import decode
from outbox.errors import NotInTransaction, WrongChange
from outbox.recording.message import RecordedVersion
from outbox.recording.writer import Change
from tests.messages import WINDOW, make_message
from tests.outbox import recorded_versions, settings

KIND = "product-instance"


def record_version(id: str = "A1", data: Any = None, **options: Any) -> int | None:
    with transaction.atomic():
        return outbox.record(KIND, id, {"rate": "1"} if data is None else data, **options)


def test_version_numbers_begin_with_one_and_grow_by_one(service: str) -> None:
    assert [record_version(data={"n": n}) for n in range(3)] == [1, 2, 3]
    assert record_version("A2") == 1
    assert [
        (version.document, version.version) for version in recorded_versions.load_versions()
    ] == [
        *((f"{KIND}/A1", n) for n in (1, 2, 3)),
        (f"{KIND}/A2", 1),
    ]


def test_version_number_of_a_rolled_back_transaction_is_used_again(service: str) -> None:
    record_version()
    with transaction.atomic():
        assert outbox.record(KIND, "A1", {"rate": "2"}) == 2
        transaction.set_rollback(True)
    assert record_version(data={"rate": "3"}) == 2
    assert [json.loads(version.data)["rate"] for version in recorded_versions.load_versions()] == [
        "1",
        "3",
    ]


def test_unchanged_document_is_not_recorded_again(service: str) -> None:
    assert [
        record_version(),
        record_version(),
        record_version(data={"rate": "2"}),
        record_version(),
    ] == [1, None, 2, 3]


def test_unchanged_document_is_recorded_again_when_send_unchanged_is_set(service: str) -> None:
    with override_settings(OUTBOX={**settings.OUTBOX, "SEND_UNCHANGED": True}):
        assert [record_version(), record_version()] == [1, 2]


def test_version_is_recorded_when_a_document_gets_a_different_parent(service: str) -> None:
    assert [
        record_version(parent="P1"),
        record_version(parent="P1"),
        record_version(parent="P2"),
    ] == [1, None, 2]


def test_versions_of_a_document_have_types_create_update_delete_and_create_again(
    service: str,
) -> None:
    record_version()
    record_version(data={"rate": "2"})
    with transaction.atomic():
        assert outbox.record(KIND, "A1", None, deleted=True) == 3
        assert outbox.record(KIND, "A1", None, deleted=True) is None
    record_version()
    assert [version.type for version in recorded_versions.load_versions()] == [0, 1, 2, 0]


def test_annals_decodes_every_message_of_the_outbox(service: str) -> None:
    data = {
        "amount": Decimal("12345678901234567890.10"),
        "day": date(2026, 11, 22),
        "moment": datetime(2026, 11, 22, 10, tzinfo=UTC),
        "uuid": UUID(int=7),
        "text": 'Квартира "1" \\ \u2028 𝄞',
        "nothing": None,
        "list": [1, 2.5, True, {}],
    }
    record_version("x" * 32, data, author="м.прыгунов" * 6, client_id="c" * 64)
    with transaction.atomic():
        outbox.record("product-task", 'P"1', {}, parent="p" * 32)
        outbox.record("product-task", 'P"1', None, parent="p" * 32, deleted=True)
    first, task, deletion = recorded_versions.load_versions()
    record = decode_version(first)
    assert (record.id, record.version, record.client_id) == ("x" * 32, 1, "c" * 64)
    assert record.author == "м.прыгунов" * 6
    assert json.loads(bytes(record.data))["amount"] == "12345678901234567890.10"
    assert record.updated_at == round(first.updated_at.timestamp() * 1_000_000)
    assert (decode_version(task).product_instance_id, decode_version(task).type) == ("p" * 32, 0)
    assert (bytes(decode_version(deletion).data), decode_version(deletion).type) == (b"null", 2)


def decode_version(version: RecordedVersion) -> Any:
    topic = settings.OUTBOX["TOPICS"][version.entity]
    return decode(make_message(version.encode_value(), topic=topic), WINDOW)


def test_record_without_a_transaction_is_refused(service: str) -> None:
    with pytest.raises(NotInTransaction, match=r"transaction\.atomic"):
        outbox.record(KIND, "A1", {})
    assert recorded_versions.load_versions() == []


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"id": ""}, "id must be a text of 1 to 32"),
        ({"id": "x" * 33}, "id must be a text of 1 to 32"),
        ({"id": "a\0"}, "cannot store"),
        ({"id": "\ud800"}, "cannot store"),
        ({"entity": "shoe"}, "no topic for 'shoe'"),
        ({"data": None}, "only a deleted document"),
        ({"data": [1]}, "must be a mapping"),
        ({"data": {"x": float("nan")}}, "not JSON"),
        ({"data": {"x": "\ud800"}}, "not JSON"),
        ({"data": {"x": object()}}, "not JSON"),
        ({"author": "x" * 65}, "author must be a text of 1 to 64"),
        ({"author": ""}, "author must be a text of 1 to 64"),
        ({"client_id": ""}, "client_id must be a text of 1 to 64"),
        ({"parent": ""}, "parent must be a text of 1 to 32"),
    ],
)
def test_record_refuses_change_that_breaks_the_message_contract(
    service: str, change: dict[str, Any], sentence: str
) -> None:
    with transaction.atomic():
        with pytest.raises(WrongChange, match=sentence):
            outbox.record(**{"entity": KIND, "id": "A1", "data": {}, **change})
        assert outbox.record(KIND, "A1", {}) == 1


def test_record_many_numbers_the_versions_of_each_document_consecutively(service: str) -> None:
    changes = [Change(KIND, f"A{n % 1200}", {"n": n}) for n in range(2500)]
    with transaction.atomic():
        numbers = outbox.record_many([*changes, changes[-1]])
    assert numbers == [n // 1200 + 1 for n in range(2500)] + [None]
    assert len(recorded_versions.load_versions()) == 2500


def test_versions_by_concurrent_writers_have_consecutive_numbers(service: str) -> None:
    """Each writer records the documents in a different order, one document in a transaction."""

    def write(writer: int) -> None:
        for n in random.Random(writer).sample(range(50), 50):
            record_version(f"A{n}", {"writer": writer})

    run_in_threads([partial(write, writer) for writer in range(20)])
    numbers = sorted((version.id, version.version) for version in recorded_versions.load_versions())
    assert numbers == sorted((f"A{n}", version) for n in range(50) for version in range(1, 21))


def test_concurrent_calls_of_record_many_for_the_same_documents_do_not_deadlock(
    service: str,
) -> None:
    ids = [f"A{n}" for n in range(200)]

    def write(writer: int) -> None:
        order = ids if writer % 2 else ids[::-1]
        with transaction.atomic():
            outbox.record_many([Change(KIND, id, {"writer": writer}) for id in order])

    run_in_threads([partial(write, writer) for writer in range(8)])
    assert len(recorded_versions.load_versions()) == 8 * 200


def run_in_threads(tasks: Sequence[Callable[[], object]]) -> None:
    def run(task: Callable[[], object]) -> None:
        try:
            task()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(tasks)) as pool:
        assert all(result is None for result in pool.map(run, tasks))


def test_order_of_versions_is_kept_when_the_clock_goes_back(service: str) -> None:
    record_version(data={"n": 1})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox_document SET recorded_at = recorded_at + interval '3 days'")
    record_version(data={"n": 2})
    first, second = recorded_versions.load_versions()
    assert second.recorded_at > first.recorded_at
    assert second.updated_at - first.updated_at < second.recorded_at - first.recorded_at
