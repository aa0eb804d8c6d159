"""Documents of several rows: a change of a part is a change of the document, once in a block."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from outbox.recorded import as_one
from tests.outbox import stored
from tests.outbox.shop.models import Basket, Line


def seen() -> list[tuple[str, int, int, Any]]:
    """Of each version: id, number, type, and the counts of its lines by name."""
    return [
        (each.id, each.version, each.type, counts(json.loads(each.data)))
        for each in stored.versions()
    ]


def counts(data: Any) -> Any:
    return data and {line["name"]: line["count"] for line in data["lines"]}


def make(name: str, **lines: int) -> Basket:
    with as_one():
        basket = Basket.objects.create(name=name)
        for line, count in lines.items():
            Line.objects.create(basket=basket, name=line, count=count)
    return basket


def test_a_change_of_a_part_is_a_version_of_the_whole(service: str) -> None:
    basket = make("B1", nail=1)
    line = basket.lines.get()
    line.count = 3
    line.save()
    line.save()  # nothing changed
    Line.objects.create(basket=basket, name="saw")
    line.delete()
    assert seen() == [
        ("B1", 1, 0, {"nail": 1}),
        ("B1", 2, 1, {"nail": 3}),
        ("B1", 3, 1, {"nail": 3, "saw": 1}),
        ("B1", 4, 1, {"saw": 1}),
    ]


def test_a_thread_with_a_copy_of_the_context_has_a_block_of_its_own(service: str) -> None:
    """Its row is committed by its own connection, whatever becomes of ours."""

    def other() -> None:
        make("B2", saw=1)
        connection.close()

    with transaction.atomic(), as_one(), ThreadPoolExecutor(1) as pool:
        make("B1", nail=1)
        pool.submit(copy_context().run, other).result()
        transaction.set_rollback(True)
    assert seen() == [("B2", 1, 0, {"saw": 1})]


def test_changes_in_a_block_are_one_version(service: str) -> None:
    basket = make("B1", nail=1, saw=1)
    with as_one():
        with as_one():
            Line.objects.filter(name="nail").update(count=5)
        Line.objects.bulk_create([Line(basket=basket, name="bolt")])
        Line.objects.filter(name="saw").delete()
        assert len(seen()) == 1
    assert seen()[1:] == [("B1", 2, 1, {"nail": 5, "bolt": 1})]


def test_a_block_that_fails_records_nothing(service: str) -> None:
    @as_one()
    def make_one_twice() -> None:
        make("B1", nail=1)
        make("B1")

    with pytest.raises(IntegrityError):
        make_one_twice()
    assert seen() == []
    make("B2", nail=1)
    assert [each[0] for each in seen()] == ["B2"]


def test_a_part_that_moves_changes_both_documents(service: str) -> None:
    one, other = make("B1", nail=1, saw=1), make("B2")
    line = Line.objects.get(name="nail")
    line.basket = other
    line.save()
    Line.objects.filter(name="saw").update(basket=other)
    line.basket = one
    Line.objects.bulk_update([line], ["basket"])
    assert [(each[0], each[3]) for each in seen()[2:]] == [
        ("B1", {"saw": 1}),
        ("B2", {"nail": 1}),
        ("B1", {}),
        ("B2", {"nail": 1, "saw": 1}),
        ("B1", {"nail": 1}),
        ("B2", {"saw": 1}),
    ]


@pytest.mark.parametrize("many", [False, True])
def test_a_document_that_is_deleted_with_its_parts(service: str, *, many: bool) -> None:
    basket = make("B1", nail=1)
    if many:
        Basket.objects.filter(name="B1").delete()
    else:
        basket.delete()
    assert seen()[1:] == [("B1", 2, 2, None)]
