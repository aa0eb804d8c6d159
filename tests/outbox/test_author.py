"""Who made a change: the user of the request, whom acting_as() names, or a command."""

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from outbox import acting_as, author
from tests.outbox import stored
from tests.outbox.shop.models import Order


def authors() -> list[str | None]:
    return [each.author for each in stored.versions()]


def test_the_user_of_the_request(service: str) -> None:
    client = Client()
    client.post("/orders/N1")
    client.force_login(user("m.prygunov"))
    client.post("/orders/N2")
    assert authors() == [None, "m.prygunov"]
    assert author.current() is None


def test_the_user_of_an_asynchronous_request(service: str) -> None:
    client = AsyncClient()
    client.force_login(user("later"))
    async_to_sync(client.post)("/later/N1")
    assert authors() == ["later"]


def test_a_login_is_cut_to_what_a_message_can_have(service: str) -> None:
    client = Client()
    client.force_login(user("x" * 100))
    client.post("/orders/N1")
    assert authors() == ["x" * 64]


def test_a_block_names_the_author(service: str) -> None:
    @acting_as("night")
    def make(number: str) -> None:
        Order.objects.create(number=number, rate=1)

    make("N1")
    with acting_as("outer"):
        with acting_as(None):
            Order.objects.create(number="N2", rate=1)
        Order.objects.create(number="N3", rate=1)
    assert authors() == ["night", None, "outer"]


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["/srv/manage.py", "reprice", "--all"], "manage.py reprice"),
        (["django-admin", "reprice"], "manage.py reprice"),
        (["manage.py"], None),
        (["gunicorn", "shop.wsgi"], None),
    ],
)
def test_outside_of_requests_the_author_is_the_command(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: str | None
) -> None:
    monkeypatch.setattr("sys.argv", arguments)
    assert author.current() == expected
    with acting_as("somebody"):
        assert author.current() == "somebody"


def user(name: str) -> User:
    return User.objects.get_or_create(username=name)[0]
