"""A number that a producer gave twice: every link leads to the very version it stands at."""

import html
import re

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from history import labels
from history.models import FieldLabel
from tests.db.screens import A1, WHOLE, text
from tests.db.store import Store, minute


@pytest.fixture
def twins(store: Store) -> Store:
    """Version 6 of minute 30 and of minute 45, and version 7 compared with the younger one."""
    store.add("A1", 5, {"rate": "five"}, 0)
    store.add("A1", 6, {"rate": "older"}, 30)
    store.add("A1", 6, {"rate": "younger"}, 45)
    store.add("A1", 7, {"rate": "seven"}, 60)
    return store


JSON = "&as=json"


def links(page: str, part: str) -> list[str]:
    """The addresses on a page that have this part, in its order, each once."""
    found = re.findall(r'href="([^"]*)"', page)
    return list(dict.fromkeys(html.unescape(each) for each in found if part in each))


def sixes(page: HttpResponse) -> list[str]:
    """The addresses of the JSON of both versions 6."""
    return [each for each in links(page.content.decode(), "as=json") if "/versions/6/" in each]


def test_the_snapshot_of_a_card_is_that_of_the_card(twins: Store, support: Client) -> None:
    shown = sixes(support.get(A1))
    pages = [support.get(address) for address in shown]
    assert ["younger" in text(page) for page in pages] == [True, False]
    assert ["older" in text(page) for page in pages] == [False, True]
    for page, other in zip(pages, reversed(shown), strict=True):
        assert "Номер 6 есть и у другой версии" in text(page)
        assert other.removesuffix(JSON) in links(page.content.decode(), "/versions/6/")
        download = links(page.content.decode(), "download=1")
        plain = html.unescape(re.sub(r"<[^>]*>", "", page.content.decode()))
        assert support.get(download[0]).content.decode() in plain


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_the_timeline_says_that_a_number_was_given_twice(
    address: str, twins: Store, support: Client
) -> None:
    page = support.get(address)
    assert text(page).count("Номер 6 есть и у другой версии.") == 2
    assert "Номер 7 есть" not in text(page)
    filtered = support.get(address, {"path": "/rate", "from": f"{minute(40):%Y-%m-%dT%H:%M}"})
    assert text(filtered).count("Номер 6 есть и у другой версии.") == 1
    (both,) = [each for each in links(page.content.decode(), "from=6") if "to=6" in each]
    assert {"older", "younger"} <= set(text(support.get(both)).split())


def test_without_a_moment_it_is_the_younger_one(twins: Store, support: Client) -> None:
    for address in (f"{A1}versions/6/", f"{A1}versions/6/?at=nonsense"):
        assert "younger" in text(support.get(address))
    assert "есть и у другой версии" not in text(support.get(f"{A1}versions/7/"))
    gone = support.get(f"{A1}versions/6/?at=2001-01-01T00:00:00Z")
    assert gone.status_code == 404
    assert "Версии 6 в хранилище нет" in text(gone)


def test_both_are_compared(twins: Store, support: Client) -> None:
    same = support.get(f"{A1}compare/?from=6&to=6")
    assert "Номер 6 есть и у другой версии" in text(same)
    _swapped, both = links(same.content.decode(), "fromAt=")
    compared = support.get(both)
    assert "Процентная ставка older younger" in text(compared)
    assert "есть и у другой версии" not in text(compared)
    (swapped,) = links(compared.content.decode(), "fromAt=")
    assert "Процентная ставка younger older" in text(support.get(swapped))
    twins.add("A1", 6, {"rate": "middle"}, 40)
    for address in (both, A1):
        third = links(support.get(address).content.decode(), "to=6")[-1]
        assert "Процентная ставка middle younger" in text(support.get(third))


def test_a_card_is_compared_with_the_newest(twins: Store, support: Client) -> None:
    twins.add("A1", 7, {"rate": "other seven"}, 50)
    page = support.get(A1).content.decode()
    found = re.findall(r'href="([^"]*)">сравнить с последней', page)
    said = [text(support.get(html.unescape(address))) for address in found]
    assert [f"Процентная ставка {old} seven" in page for old, page in zip(
        ("other seven", "younger", "older", "five"), said, strict=True
    )] == [True] * 4  # fmt: skip


def test_the_state_leads_to_the_version_that_set_the_value(twins: Store, support: Client) -> None:
    twins.add("A1", 7, {"rate": "seven", "name": "first"}, 70)
    twins.add("A1", 8, {"rate": "younger", "name": "first"}, 80)
    page = support.get(f"{A1}state/").content.decode()
    assert len(links(page, "/versions/7/?at=")) == 1
    assert "first" in text(support.get(links(page, "/versions/7/?at=")[0]))


def test_the_value_of_the_shown_twin_is_unmasked(twins: Store, client: Client) -> None:
    FieldLabel.objects.create(entity="", path="/rate", russian="Ставка", sensitive=True)
    labels.forget()
    client.force_login(User.objects.get(username="privacy"))
    for address, value in zip(sixes(client.get(A1)), ("younger", "older"), strict=True):
        page = client.get(address).content.decode()
        (unmask,) = links(page, "/unmask/")
        answer = client.post(unmask, {"path": "/rate", "reason": "complaint 17"})
        assert value in text(answer)
        assert address.removesuffix(JSON) in links(answer.content.decode(), "/versions/6/")
