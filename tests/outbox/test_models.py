"""Each change of a recorded model is a version, also of many rows at once."""

import json
from decimal import Decimal

import pytest
from django.db.models import F

from outbox.errors import OutboxError, WrongChange
from tests.outbox import stored
from tests.outbox.shop.models import Flag, Item, Order


def test_each_change_of_a_row_is_a_version(service: str) -> None:
    order = Order.objects.create(number="N1", rate="17.9")
    order.rate = Decimal(18)
    order.save()
    order.opened = 5  # not in the snapshot
    order.save(update_fields=["opened"])
    order.delete()
    assert [(each.type, each.data) for each in stored.versions()] == [
        (0, '{"number":"N1","rate":"17.90","note":""}'),
        (1, '{"number":"N1","rate":"18.00","note":""}'),
        (2, "null"),
    ]


def test_the_snapshot_has_what_the_database_has(service: str) -> None:
    order = Order.objects.create(number="N1", rate="1")
    order.rate = F("rate") + 1
    order.save()
    assert [json.loads(each.data)["rate"] for each in stored.versions()] == ["1.00", "2.00"]


def test_a_serializer_and_a_parent(service: str) -> None:
    order = Order.objects.create(number="N1", rate="1")
    item = Item.objects.create(order=order, name="nail")
    found = stored.versions()[-1]
    assert found.document == f"product-task/{item.pk}"
    assert found.parent == "N1"
    assert found.data == f'{{"pid":"{item.pk}","name":"nail"}}'


def test_all_columns_without_a_callable(service: str) -> None:
    flag = Flag.objects.create(name="x")
    assert json.loads(stored.versions()[0].data) == {"id": flag.pk, "name": "x", "on": False}


def test_deletion_by_cascade_is_recorded(service: str) -> None:
    order = Order.objects.create(number="N1", rate="1")
    Item.objects.create(order=order, name="nail")
    order.delete()
    assert sorted(each.document[:12] for each in stored.versions() if each.type == 2) == [
        "product-inst",
        "product-task",
    ]


def test_bulk_changes(service: str) -> None:
    made = Order.objects.bulk_create([Order(number=f"N{n}", rate=n) for n in range(700)])
    assert len(stored.versions()) == 700
    for order in made[:5]:
        order.note = "x"
    assert Order.objects.bulk_update(made[:5], ["note"]) == 5
    assert Order.objects.filter(rate__lt=3).update(note="y") == 3
    assert Order.objects.filter(rate__lt=2).delete()[0] == 2
    notes = [(each.id, each.version, each.type) for each in stored.versions()][700:]
    changed = [(f"N{n}", 2, 1) for n in range(5)] + [(f"N{n}", 3, 1) for n in range(3)]
    assert sorted(notes) == sorted([*changed, ("N0", 4, 2), ("N1", 4, 2)])


def test_bulk_create_with_conflicts(service: str) -> None:
    Order.objects.create(number="N1", rate="1")
    with pytest.raises(OutboxError, match="ignore_conflicts"):
        Order.objects.bulk_create([Order(number="N1", rate="2")], ignore_conflicts=True)
    Order.objects.bulk_create(
        [Order(number="N1", rate="2"), Order(number="N2", rate="2")],
        update_conflicts=True,
        unique_fields=["number"],
        update_fields=["rate"],
    )
    assert [(each.id, each.version) for each in stored.versions()] == [
        ("N1", 1),
        ("N1", 2),
        ("N2", 1),
    ]


def test_changes_and_versions_fail_together(service: str) -> None:
    Flag.objects.bulk_create([Flag(name="a"), Flag(name="b")])
    with pytest.raises(WrongChange):
        Flag.objects.update(name="")
    assert set(Flag.objects.values_list("name", flat=True)) == {"a", "b"}
    assert len(stored.versions()) == 2
