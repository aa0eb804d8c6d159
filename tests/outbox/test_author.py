"""The author of a version.

It is the user of the request, the name given to acting_as(), the management command, or the author
who sent a Celery task to a worker.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from celery import Celery, shared_task
from celery.contrib.testing.worker import start_worker
from django.contrib.auth.models import User
from django.db import connection
from django.http import FileResponse
from django.test import AsyncClient, Client, RequestFactory

from outbox import acting_as
from outbox.middleware import author_middleware
from outbox.recording import author
from tests.outbox import recorded_versions
from tests.outbox.shop.models import Order


def list_authors() -> list[str | None]:
    return [version.author for version in recorded_versions.load_versions()]


def test_author_is_the_user_of_the_request(service: str) -> None:
    client = Client()
    client.post("/orders/N1")
    client.force_login(get_user("m.prygunov"))
    client.post("/orders/N2")
    assert list_authors() == [None, "m.prygunov"]
    assert author.get_current_author() is None


def test_author_is_the_user_of_an_asynchronous_request(service: str) -> None:
    client = AsyncClient()
    client.force_login(get_user("later"))
    async_to_sync(client.post)("/later/N1")
    assert list_authors() == ["later"]


def test_versions_recorded_while_a_response_streams_have_the_user_as_author(service: str) -> None:
    client = Client()
    client.force_login(get_user("m.prygunov"))
    response = client.post("/streamed/N1")
    assert author.get_current_author() is None
    assert response.getvalue() == b"0\n1\n"
    assert list_authors() == ["m.prygunov"] * 3
    assert author.get_current_author() is None


def test_versions_recorded_when_the_client_disconnects_have_the_user_as_author(
    service: str,
) -> None:
    client = Client()
    client.force_login(get_user("m.prygunov"))
    response = client.post("/streamed/N1")
    assert next(iter(response)) == b"0\n"
    response.close()
    assert [version.id for version in recorded_versions.load_versions()] == ["N1-0", "N1-end"]
    assert list_authors() == ["m.prygunov"] * 2


def test_versions_recorded_while_an_async_response_streams_have_the_user_as_author(
    service: str,
) -> None:
    client = AsyncClient()
    client.force_login(get_user("later"))

    @async_to_sync
    async def read() -> bytes:
        response: Any = await client.post("/streamed-later/N1")
        return b"".join([part async for part in response])

    assert read() == b"0\n1\n"
    assert list_authors() == ["later"] * 2


def test_author_middleware_leaves_the_stream_of_a_file_response_unchanged() -> None:
    file = Path(__file__).open("rb")  # noqa: SIM115 - the response closes it
    middleware = author_middleware(lambda _: FileResponse(file))  # type: ignore[arg-type,return-value]
    response: Any = middleware(RequestFactory().get("/"))
    assert response.file_to_stream is not None
    response.close()


def test_long_login_is_cut_to_the_length_of_an_author(service: str) -> None:
    client = Client()
    client.force_login(get_user("x" * 100))
    client.post("/orders/N1")
    assert list_authors() == ["x" * 64]


def test_author_is_the_name_from_the_innermost_block_of_acting_as(service: str) -> None:
    @acting_as("night")
    def make(number: str) -> None:
        Order.objects.create(number=number, rate=1)

    make("N1")
    with acting_as("outer"):
        with acting_as(None):
            Order.objects.create(number="N2", rate=1)
        Order.objects.create(number="N3", rate=1)
    assert list_authors() == ["night", None, "outer"]


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["/srv/manage.py", "reprice", "--all"], "manage.py reprice"),
        (["django-admin", "reprice"], "manage.py reprice"),
        (["manage.py"], None),
        (["gunicorn", "shop.wsgi"], None),
    ],
)
def test_author_outside_of_requests_is_the_management_command(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str | None
) -> None:
    monkeypatch.setattr("sys.argv", arguments)
    assert author.get_current_author() == expected
    with acting_as("somebody"):
        assert author.get_current_author() == "somebody"


def get_user(name: str) -> User:
    return User.objects.get_or_create(username=name)[0]


def make_order(number: str) -> None:
    Order.objects.create(number=number, rate=1)


def close_connection() -> None:
    connection.close()


make: Any = shared_task(name="shop.make")(make_order)
end: Any = shared_task(name="shop.end")(close_connection)


@pytest.fixture
def celery_worker(service: str) -> Iterator[None]:
    app = Celery("shop", broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.worker_hijack_root_logger = False
    with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=20):
        yield
        run_task(end)


def run_task(task: Any, *arguments: str) -> None:
    task.delay(*arguments).get(timeout=120)


def test_author_of_versions_in_a_celery_task_is_the_author_who_sent_the_task(
    celery_worker: None,
) -> None:
    with acting_as("m.prygunov"):
        run_task(make, "N1")
    run_task(make, "N2")
    assert [version.author for version in recorded_versions.load_versions()] == [
        "m.prygunov",
        "task shop.make",
    ]
    assert author.get_current_author() is None


def test_celery_task_run_in_the_same_process_keeps_the_current_author(service: str) -> None:
    with acting_as("m.prygunov"):
        make.apply(["N1"])
        assert author.get_current_author() == "m.prygunov"
    make.apply(["N2"])
    assert [version.author for version in recorded_versions.load_versions()] == [
        "m.prygunov",
        "task shop.make",
    ]
