"""Each change of a recorded model is recorded as a version.

This includes changes of many rows at once. A change of a part is a change of the document. In a
`with as_one()` block, all changes of a document become one version.
"""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F
from django.test import override_settings

from outbox.errors import OutboxError, WrongChange
from outbox.recorded import as_one
from outbox.recording.message import RecordedVersion
from tests.outbox import recorded_versions, settings
from tests.outbox.shop.models import Basket, Flag, Item, Line, Note, Order
from tests.outbox.test_write import run_in_threads


def test_each_change_of_a_row_is_recorded_as_a_version(service: str) -> None:
    order = Order.objects.create(number="N1", rate="17.9")
    order.rate = Decimal(18)
    order.save()
    order.opened = 5  # not in the snapshot
    order.save(update_fields=["opened"])
    order.delete()
    assert [(version.type, version.data) for version in recorded_versions.load_versions()] == [
        (0, '{"number":"N1","rate":"17.90","note":""}'),
        (1, '{"number":"N1","rate":"18.00","note":""}'),
        (2, "null"),
    ]


def test_snapshot_has_values_as_the_database_stores_them(service: str) -> None:
    order = Order.objects.create(number="N1", rate="1")
    order.rate = F("rate") + 1
    order.save()
    assert [json.loads(version.data)["rate"] for version in recorded_versions.load_versions()] == [
        "1.00",
        "2.00",
    ]


def test_version_has_serializer_output_and_parent_id_of_its_row(service: str) -> None:
    order = Order.objects.create(number="N1", rate="1")
    item = Item.objects.create(order=order, name="nail")
    version = recorded_versions.load_versions()[-1]
    assert version.document == f"product-task/{item.pk}"
    assert version.parent == "N1"
    assert version.data == f'{{"pid":"{item.pk}","name":"nail"}}'


def test_snapshot_has_all_columns_when_model_declares_no_snapshot_function(service: str) -> None:
    flag = Flag.objects.create(name="x")
    assert json.loads(recorded_versions.load_versions()[0].data) == {
        "id": flag.pk,
        "name": "x",
        "on": False,
    }


def test_deletion_by_cascade_is_recorded(service: str) -> None:
    order = Order.objects.create(number="N1", rate="1")
    Item.objects.create(order=order, name="nail")
    order.delete()
    assert sorted(
        version.document[:12] for version in recorded_versions.load_versions() if version.type == 2
    ) == [
        "product-inst",
        "product-task",
    ]


def test_bulk_change_records_one_version_for_each_row(service: str) -> None:
    orders = Order.objects.bulk_create([Order(number=f"N{n}", rate=n) for n in range(700)])
    assert len(recorded_versions.load_versions()) == 700
    for order in orders[:5]:
        order.note = "x"
    assert Order.objects.bulk_update(orders[:5], ["note"]) == 5
    assert Order.objects.filter(rate__lt=3).update(note="y") == 3
    assert Order.objects.filter(rate__lt=2).delete()[0] == 2
    notes = [
        (version.id, version.version, version.type) for version in recorded_versions.load_versions()
    ][700:]
    changed = [(f"N{n}", 2, 1) for n in range(5)] + [(f"N{n}", 3, 1) for n in range(3)]
    assert sorted(notes) == sorted([*changed, ("N0", 4, 2), ("N1", 4, 2)])


def test_bulk_create_records_rows_updated_on_conflict_and_refuses_ignore_conflicts(
    service: str,
) -> None:
    Order.objects.create(number="N1", rate="1")
    with pytest.raises(OutboxError, match="ignore_conflicts"):
        Order.objects.bulk_create([Order(number="N1", rate="2")], ignore_conflicts=True)
    Order.objects.bulk_create(
        [Order(number="N1", rate="2"), Order(number="N2", rate="2")],
        update_conflicts=True,
        unique_fields=["number"],
        update_fields=["rate"],
    )
    assert [(version.id, version.version) for version in recorded_versions.load_versions()] == [
        ("N1", 1),
        ("N1", 2),
        ("N2", 1),
    ]


def test_change_is_rolled_back_when_its_version_is_refused(service: str) -> None:
    Flag.objects.bulk_create([Flag(name="a"), Flag(name="b")])
    with pytest.raises(WrongChange):
        Flag.objects.update(name="")
    assert set(Flag.objects.values_list("name", flat=True)) == {"a", "b"}
    assert len(recorded_versions.load_versions()) == 2


def list_basket_versions() -> list[tuple[str, int, int, Any]]:
    """Return all recorded versions of baskets, as tuples with four members.

    The members are the id of the basket, the number of the version, its type, and a mapping from
    the name of each line of the basket to the line's `count`.
    """
    return [
        (version.id, version.version, version.type, map_line_counts(json.loads(version.data)))
        for version in recorded_versions.load_versions()
    ]


def map_line_counts(data: Any) -> Any:
    return data and {line["name"]: line["count"] for line in data["lines"]}


def create_basket(name: str, **lines: int) -> Basket:
    with as_one():
        basket = Basket.objects.create(name=name)
        for line, count in lines.items():
            Line.objects.create(basket=basket, name=line, count=count)
    return basket


def test_change_of_a_part_is_recorded_as_a_version_of_its_document(service: str) -> None:
    basket = create_basket("B1", nail=1)
    line = basket.lines.get()
    line.count = 3
    line.save()
    line.save()  # nothing changed
    Line.objects.create(basket=basket, name="saw")
    line.delete()
    assert list_basket_versions() == [
        ("B1", 1, 0, {"nail": 1}),
        ("B1", 2, 1, {"nail": 3}),
        ("B1", 3, 1, {"nail": 3, "saw": 1}),
        ("B1", 4, 1, {"saw": 1}),
    ]


def test_thread_that_copies_the_context_gets_a_separate_recording_block(service: str) -> None:
    """The thread commits over its own connection. The transaction of the test is rolled back."""

    def write_in_thread() -> None:
        create_basket("B2", saw=1)
        connection.close()

    with transaction.atomic(), as_one(), ThreadPoolExecutor(1) as pool:
        create_basket("B1", nail=1)
        pool.submit(copy_context().run, write_in_thread).result()
        transaction.set_rollback(True)
    assert list_basket_versions() == [("B2", 1, 0, {"saw": 1})]


def test_changes_of_a_document_in_one_as_one_block_become_one_version(
    service: str,
) -> None:
    basket = create_basket("B1", nail=1, saw=1)
    with as_one():
        with as_one():
            Line.objects.filter(name="nail").update(count=5)
        Line.objects.bulk_create([Line(basket=basket, name="bolt")])
        Line.objects.filter(name="saw").delete()
        assert len(list_basket_versions()) == 1
    assert list_basket_versions()[1:] == [("B1", 2, 1, {"nail": 5, "bolt": 1})]


def test_as_one_decorator_records_nothing_when_the_function_raises(service: str) -> None:
    @as_one()
    def make_one_twice() -> None:
        create_basket("B1", nail=1)
        create_basket("B1")

    with pytest.raises(IntegrityError):
        make_one_twice()
    assert list_basket_versions() == []
    create_basket("B2", nail=1)
    assert [version[0] for version in list_basket_versions()] == ["B2"]


def test_part_that_moves_between_two_documents_makes_a_version_of_both_documents(
    service: str,
) -> None:
    basket, other_basket = create_basket("B1", nail=1, saw=1), create_basket("B2")
    line = Line.objects.get(name="nail")
    line.basket = other_basket
    line.save()
    Line.objects.filter(name="saw").update(basket=other_basket)
    line.basket = basket
    Line.objects.bulk_update([line], ["basket"])
    assert [(version[0], version[3]) for version in list_basket_versions()[2:]] == [
        ("B1", {"saw": 1}),
        ("B2", {"nail": 1}),
        ("B1", {}),
        ("B2", {"nail": 1, "saw": 1}),
        ("B1", {"nail": 1}),
        ("B2", {"saw": 1}),
    ]


@pytest.mark.parametrize("is_bulk", [False, True])
def test_deletion_of_a_document_with_its_parts_is_recorded_as_one_version(
    service: str, *, is_bulk: bool
) -> None:
    basket = create_basket("B1", nail=1)
    if is_bulk:
        Basket.objects.filter(name="B1").delete()
    else:
        basket.delete()
    assert list_basket_versions()[1:] == [("B1", 2, 2, None)]


def get_last_version(id: str) -> RecordedVersion:
    return [version for version in recorded_versions.load_versions() if version.id == id][-1]


def load_last_snapshot(id: str) -> Any:
    return json.loads(get_last_version(id).data)


def run_overlapping(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Run two transactions: the second one begins before the first one commits."""
    has_changed = threading.Event()

    def begin() -> None:
        with transaction.atomic():
            first()
            has_changed.set()
            time.sleep(0.5)

    def follow() -> None:
        has_changed.wait(120)
        with transaction.atomic():
            second()

    run_in_threads([begin, follow])


def test_record_method_waits_until_another_transaction_commits_its_change(service: str) -> None:
    Order.objects.create(number="N1", rate=1)
    run_overlapping(lambda: Order.objects.update(rate=2), lambda: Order.objects.get().record())
    assert load_last_snapshot("N1")["rate"] == "2.00"


def test_snapshot_has_both_parts_that_two_overlapping_transactions_add_to_a_document(
    service: str,
) -> None:
    basket = Basket.objects.create(name="B")
    run_overlapping(
        lambda: Line.objects.create(basket=basket, name="a"),
        lambda: Line.objects.create(basket=basket, name="b"),
    )
    assert [line["name"] for line in load_last_snapshot("B")["lines"]] == ["a", "b"]


def test_recording_an_update_does_not_block_transactions_that_refer_to_the_row(
    service: str,
) -> None:
    Order.objects.create(number="N1", rate=1)

    def refer() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '50ms'")
            cursor.execute("SELECT FROM shop_order FOR KEY SHARE")

    run_overlapping(lambda: Order.objects.update(note="x"), refer)


def test_deletion_rolled_back_to_a_savepoint_is_not_recorded(service: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    with as_one():
        with transaction.atomic():
            order.delete()
            transaction.set_rollback(True)
        Order.objects.update(rate=2)
    assert [version.type for version in recorded_versions.load_versions()] == [0, 1]


def test_as_one_block_records_nothing_when_its_transaction_is_rolled_back(
    service: str,
) -> None:
    with as_one():
        Order.objects.create(number="N1", rate=1)
        transaction.set_rollback(True)
    assert recorded_versions.load_versions() == []


def test_bulk_update_records_each_row_once(service: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    with override_settings(OUTBOX={**settings.OUTBOX, "SEND_UNCHANGED": True}):
        Order.objects.bulk_update([order], ["note"])
    assert [version.version for version in recorded_versions.load_versions()] == [1, 2]


def test_update_of_rows_filtered_by_relations_is_recorded(service: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    for name in ("a", "b"):
        Item.objects.create(order=order, name=name)
    matching = Order.objects.filter(items__name__in=("a", "b"))
    assert matching.update(note="1") == 1
    assert matching.distinct().update(note="2") == 1
    counted = Order.objects.annotate(count=Count("items"))
    assert counted.filter(count__gt=2).update(note="no") == 0
    assert counted.filter(count=2).update(note="3") == 1
    assert Order.objects.values("rate").distinct().update(note="4") == 1
    notes = [
        json.loads(version.data)["note"]
        for version in recorded_versions.load_versions()
        if version.id == "N1"
    ]
    assert notes == ["", "1", "2", "3", "4"]


@pytest.mark.parametrize("change", ["deferred", "queryset", "changed"])
def test_deletion_of_a_row_is_recorded_when_some_of_its_fields_are_not_loaded(
    service: str, change: str
) -> None:
    order = Order.objects.create(number="N1", rate=1)
    if change == "deferred":
        Order.objects.only("pk").get().delete()
    elif change == "queryset":
        Order.objects.only("pk").delete()
    else:
        order.number = "N2"
        order.delete()
    assert [(version.id, version.type) for version in recorded_versions.load_versions()] == [
        ("N1", 0),
        ("N1", 2),
    ]


def test_row_is_recorded_when_deletion_of_another_row_sets_its_reference_to_null(
    service: str,
) -> None:
    order = Order.objects.create(number="N1", rate=1)
    note = Note.objects.create(order=order)
    order.delete()
    assert load_last_snapshot(note.pk.hex)["order_id"] is None


def test_column_that_json_cannot_express_is_recorded_as_text(service: str) -> None:
    note = Note.objects.create(scan="a.pdf")
    assert load_last_snapshot(note.pk.hex) == {
        "id": str(note.pk),
        "order_id": None,
        "scan": "a.pdf",
    }
