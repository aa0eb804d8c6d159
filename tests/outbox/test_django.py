"""What a service does with Django's models, and what must become of its documents then."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Count
from django.test import override_settings

from outbox.message import Version
from outbox.recorded import as_one
from tests.outbox import settings, stored
from tests.outbox.shop.models import Basket, Item, Line, Note, Order
from tests.outbox.test_write import in_threads


def last(id: str) -> Version:
    return [each for each in stored.versions() if each.id == id][-1]


def data(id: str) -> Any:
    return json.loads(last(id).data)


def together(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Two transactions: the second one begins before the first one commits."""
    done = threading.Event()

    def begin() -> None:
        with transaction.atomic():
            first()
            done.set()
            time.sleep(0.5)

    def follow() -> None:
        done.wait(10)
        with transaction.atomic():
            second()

    in_threads([begin, follow])


def test_a_row_that_another_transaction_changes_is_not_recorded_as_it_was(service: str) -> None:
    Order.objects.create(number="N1", rate=1)
    together(lambda: Order.objects.update(rate=2), lambda: Order.objects.get().record())
    assert data("N1")["rate"] == "2.00"


def test_parts_that_come_in_two_transactions_are_both_in_the_document(service: str) -> None:
    basket = Basket.objects.create(name="B")
    together(
        lambda: Line.objects.create(basket=basket, name="a"),
        lambda: Line.objects.create(basket=basket, name="b"),
    )
    assert [each["name"] for each in data("B")["lines"]] == ["a", "b"]


def test_rows_are_locked_no_more_than_an_update_locks_them(service: str) -> None:
    """Others may begin to refer to them."""
    Order.objects.create(number="N1", rate=1)

    def refer() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '50ms'")
            cursor.execute("SELECT FROM shop_order FOR KEY SHARE")

    together(lambda: Order.objects.update(note="x"), refer)


def test_a_deletion_that_is_rolled_back_to_a_savepoint_is_none(service: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    with as_one():
        with transaction.atomic():
            order.delete()
            transaction.set_rollback(True)
        Order.objects.update(rate=2)
    assert [each.type for each in stored.versions()] == [0, 1]


def test_a_block_that_is_rolled_back_records_nothing(service: str) -> None:
    with as_one():
        Order.objects.create(number="N1", rate=1)
        transaction.set_rollback(True)
    assert stored.versions() == []


def test_a_bulk_update_records_each_row_once(service: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    with override_settings(OUTBOX={**settings.OUTBOX, "SEND_UNCHANGED": True}):
        Order.objects.bulk_update([order], ["note"])
    assert [each.version for each in stored.versions()] == [1, 2]


def test_an_update_of_rows_that_are_found_by_others(service: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    for name in ("a", "b"):
        Item.objects.create(order=order, name=name)
    found = Order.objects.filter(items__name__in=("a", "b"))
    assert found.update(note="1") == 1
    assert found.distinct().update(note="2") == 1
    counted = Order.objects.annotate(count=Count("items"))
    assert counted.filter(count__gt=2).update(note="no") == 0
    assert counted.filter(count=2).update(note="3") == 1
    assert Order.objects.values("rate").distinct().update(note="4") == 1
    notes = [json.loads(each.data)["note"] for each in stored.versions() if each.id == "N1"]
    assert notes == ["", "1", "2", "3", "4"]


@pytest.mark.parametrize("change", ["deferred", "queryset", "changed"])
def test_the_deletion_of_a_row_that_is_not_completely_in_memory(service: str, change: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    if change == "deferred":
        Order.objects.only("pk").get().delete()
    elif change == "queryset":
        Order.objects.only("pk").delete()
    else:
        order.number = "N2"
        order.delete()
    assert [(each.id, each.type) for each in stored.versions()] == [("N1", 0), ("N1", 2)]


def test_a_row_that_loses_what_it_refers_to_is_recorded(service: str) -> None:
    order = Order.objects.create(number="N1", rate=1)
    note = Note.objects.create(order=order)
    order.delete()
    assert data(note.pk.hex)["order_id"] is None


def test_a_column_that_json_has_no_form_for(service: str) -> None:
    note = Note.objects.create(scan="a.pdf")
    assert data(note.pk.hex) == {"id": str(note.pk), "order_id": None, "scan": "a.pdf"}
