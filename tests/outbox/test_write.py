"""Versions are recorded in the transaction of the change, and numbered without gaps."""

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
from ingest.source.decode import decode
from outbox.errors import NotInTransaction, WrongChange
from outbox.message import Version
from outbox.writer import Change
from tests.messages import WINDOW, message
from tests.outbox import settings, stored

KIND = "product-instance"


def record(id: str = "A1", data: Any = None, **more: Any) -> int | None:
    with transaction.atomic():
        return outbox.record(KIND, id, {"rate": "1"} if data is None else data, **more)


def test_numbers_begin_with_one_and_grow_by_one(service: str) -> None:
    assert [record(data={"n": n}) for n in range(3)] == [1, 2, 3]
    assert record("A2") == 1
    assert [(each.document, each.version) for each in stored.versions()] == [
        *((f"{KIND}/A1", n) for n in (1, 2, 3)),
        (f"{KIND}/A2", 1),
    ]


def test_a_rollback_gives_the_number_back(service: str) -> None:
    record()
    with transaction.atomic():
        assert outbox.record(KIND, "A1", {"rate": "2"}) == 2
        transaction.set_rollback(True)
    assert record(data={"rate": "3"}) == 2
    assert [json.loads(each.data)["rate"] for each in stored.versions()] == ["1", "3"]


def test_an_unchanged_document_is_not_recorded(service: str) -> None:
    assert [record(), record(), record(data={"rate": "2"}), record()] == [1, None, 2, 3]


def test_an_unchanged_document_is_recorded_if_the_service_wants_it(service: str) -> None:
    with override_settings(OUTBOX={**settings.OUTBOX, "SEND_UNCHANGED": True}):
        assert [record(), record()] == [1, 2]


def test_another_parent_is_a_change(service: str) -> None:
    assert [record(parent="P1"), record(parent="P1"), record(parent="P2")] == [1, None, 2]


def test_types_follow_the_life_of_a_document(service: str) -> None:
    record()
    record(data={"rate": "2"})
    with transaction.atomic():
        assert outbox.record(KIND, "A1", None, deleted=True) == 3
        assert outbox.record(KIND, "A1", None, deleted=True) is None
    record()
    assert [each.type for each in stored.versions()] == [0, 1, 2, 0]


def test_annals_decodes_every_message(service: str) -> None:
    data = {
        "amount": Decimal("12345678901234567890.10"),
        "day": date(2026, 11, 22),
        "moment": datetime(2026, 11, 22, 10, tzinfo=UTC),
        "uuid": UUID(int=7),
        "text": 'Квартира "1" \\ \u2028 𝄞',
        "nothing": None,
        "list": [1, 2.5, True, {}],
    }
    record("x" * 32, data, author="м.прыгунов" * 6, client_id="c" * 64)
    with transaction.atomic():
        outbox.record("product-task", 'P"1', {}, parent="p" * 32)
        outbox.record("product-task", 'P"1', None, parent="p" * 32, deleted=True)
    first, task, gone = stored.versions()
    found = decoded(first)
    assert (found.id, found.version, found.client_id) == ("x" * 32, 1, "c" * 64)
    assert found.author == "м.прыгунов" * 6
    assert json.loads(bytes(found.data))["amount"] == "12345678901234567890.10"
    assert found.updated_at == round(first.updated_at.timestamp() * 1_000_000)
    assert (decoded(task).product_instance_id, decoded(task).type) == ("p" * 32, 0)
    assert (bytes(decoded(gone).data), decoded(gone).type) == (b"null", 2)


def decoded(version: Version) -> Any:
    topic = settings.OUTBOX["TOPICS"][version.entity]
    return decode(message(version.value(), topic=topic), WINDOW)


def test_without_a_transaction_nothing_is_recorded(service: str) -> None:
    with pytest.raises(NotInTransaction, match=r"transaction\.atomic"):
        outbox.record(KIND, "A1", {})
    assert stored.versions() == []


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
        ({"data": {"x": float("nan")}}, "no JSON"),
        ({"data": {"x": "\ud800"}}, "no JSON"),
        ({"data": {"x": object()}}, "no JSON"),
        ({"author": "x" * 65}, "author must be a text of 1 to 64"),
        ({"author": ""}, "author must be a text of 1 to 64"),
        ({"client_id": ""}, "client_id must be a text of 1 to 64"),
        ({"parent": ""}, "parent must be a text of 1 to 32"),
    ],
)
def test_what_consumers_would_refuse_is_not_recorded(
    service: str, change: dict[str, Any], sentence: str
) -> None:
    with transaction.atomic():
        with pytest.raises(WrongChange, match=sentence):
            outbox.record(**{"entity": KIND, "id": "A1", "data": {}, **change})
        assert outbox.record(KIND, "A1", {}) == 1


def test_many_documents_in_one_call(service: str) -> None:
    changes = [Change(KIND, f"A{n % 1200}", {"n": n}) for n in range(2500)]
    with transaction.atomic():
        numbers = outbox.record_many([*changes, changes[-1]])
    assert numbers == [n // 1200 + 1 for n in range(2500)] + [None]
    assert len(stored.versions()) == 2500


def test_concurrent_writers_leave_no_gap_and_no_twin(service: str) -> None:
    """Each takes the documents in its own order, one in a transaction."""

    def write(writer: int) -> None:
        for n in random.Random(writer).sample(range(50), 50):
            record(f"A{n}", {"writer": writer})

    in_threads([partial(write, writer) for writer in range(20)])
    found = sorted((each.id, each.version) for each in stored.versions())
    assert found == sorted((f"A{n}", version) for n in range(50) for version in range(1, 21))


def test_writers_of_the_same_documents_in_one_call_do_not_block_each_other(service: str) -> None:
    ids = [f"A{n}" for n in range(200)]

    def write(writer: int) -> None:
        order = ids if writer % 2 else ids[::-1]
        with transaction.atomic():
            outbox.record_many([Change(KIND, id, {"writer": writer}) for id in order])

    in_threads([partial(write, writer) for writer in range(8)])
    assert len(stored.versions()) == 8 * 200


def in_threads(tasks: Sequence[Callable[[], object]]) -> None:
    def run(task: Callable[[], object]) -> None:
        try:
            task()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(tasks)) as pool:
        assert all(each is None for each in pool.map(run, tasks))


def test_a_clock_that_goes_back_changes_no_order(service: str) -> None:
    record(data={"n": 1})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE outbox_document SET recorded_at = recorded_at + interval '3 days'")
    record(data={"n": 2})
    first, second = stored.versions()
    assert second.recorded_at > first.recorded_at
    assert second.updated_at - first.updated_at < second.recorded_at - first.recorded_at
