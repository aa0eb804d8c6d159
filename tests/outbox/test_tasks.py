"""The author in tasks of Celery, with a worker that takes them from a queue."""

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, shared_task
from celery.contrib.testing.worker import start_worker
from django.db import connection

from outbox import acting_as, author
from tests.outbox import stored
from tests.outbox.shop.models import Order


def make_order(number: str) -> None:
    Order.objects.create(number=number, rate=1)


def close_connection() -> None:
    connection.close()


make: Any = shared_task(name="shop.make")(make_order)
end: Any = shared_task(name="shop.end")(close_connection)


@pytest.fixture
def worker(service: str) -> Iterator[None]:
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.worker_hijack_root_logger = False
    with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=20):
        yield
        run(end)


def run(task: Any, *arguments: str) -> None:
    task.delay(*arguments).get(timeout=20)


def test_who_sends_a_task_is_the_author_of_what_it_records(worker: None) -> None:
    with acting_as("m.prygunov"):
        run(make, "N1")
    run(make, "N2")
    assert [each.author for each in stored.versions()] == ["m.prygunov", "task shop.make"]
    assert author.current() is None


def test_a_task_that_runs_at_once_has_the_present_author(service: str) -> None:
    with acting_as("m.prygunov"):
        make.apply(["N1"])
        assert author.current() == "m.prygunov"
    make.apply(["N2"])
    assert [each.author for each in stored.versions()] == ["m.prygunov", "task shop.make"]
