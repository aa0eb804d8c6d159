"""Helpers of the tests of screens: documents, a client with the role support, and page parsers."""

import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from history.models import FieldLabel, Person
from history.store.catalogue import labels
from tests.db.store import Store

A1 = "/admin/history/product-instance/A1/"
WHOLE = "/admin/applications/A1/"
SCREENS = [
    "/admin/history/",
    "/admin/history/?q=A1",
    A1,
    WHOLE,
    "/admin/at/A1/",
    f"{A1}versions/0/",
    f"{A1}state/",
    f"{A1}compare/?from=0&to=1",
    "/admin/history/product-instance/UNSEEN/",
]


@pytest.fixture
def documents(store: Store) -> Store:
    """Store an application with two versions, and a child of the application.

    Annals has a name for the author of the first version, but not for the author of the second.
    """
    Person.objects.create(login="m.ivanov", full_name="Иванов Михаил", kind="person")
    Person.objects.create(login="top-crm", full_name="Обмен с CRM", kind="service")
    FieldLabel.objects.update_or_create(
        entity="product-instance",
        path="/rate",
        defaults={"russian": "Ставка", "english": "Rate", "kind": "percent"},
    )
    labels.forget_catalogue()
    store.add("A1", 0, {"name": "Ипотека", "rate": "18.4"}, 0)
    store.add("A1", 1, {"name": "Ипотека", "rate": "17.9"}, 1, author="x.unknown")
    store.add("R1", 0, {"fullName": "Рожков Олег"}, 2, entity="participant-role")
    return store


@pytest.fixture
def support(client: Client) -> Client:
    client.force_login(User.objects.get(username="support"))
    return client


def read_text(response: HttpResponse) -> str:
    """Return roughly the text that a person sees: without tags, with single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.content.decode()))


def iterate_pages(client: Client, address: str) -> Iterator[str]:
    """Yield the page at the address and all next pages."""
    while address:
        page = client.get(address).content.decode()
        yield page
        address = find_link(page, "next")


def find_link(page: str, relation: str) -> str:
    """Return the address of the link with this relation (`next`, `prev`), or "" if there is
    none."""
    match = re.search(rf'rel="{relation}" href="([^"]*)"', page)
    return match[1].replace("&amp;", "&") if match else ""
