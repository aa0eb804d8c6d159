"""If a producer used one number for two versions, each link leads to the right version."""

import html
import re

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from history.models import FieldLabel
from history.store.catalogue import labels
from tests.db.screens import A1, WHOLE, read_text
from tests.db.store import Store, minute


@pytest.fixture
def document_with_repeated_number(store: Store) -> Store:
    """Store versions 5, 6, 6 and 7 of A1: a producer used number 6 at minute 30 and minute 45."""
    store.add("A1", 5, {"rate": "five"}, 0)
    store.add("A1", 6, {"rate": "elder"}, 30)
    store.add("A1", 6, {"rate": "younger"}, 45)
    store.add("A1", 7, {"rate": "seven"}, 60)
    return store


JSON = "&as=json"


def find_links(page: str, part: str) -> list[str]:
    """Return the linked addresses that contain `part`, in page order and without repeats."""
    matches = re.findall(r'href="([^"]*)"', page)
    return list(dict.fromkeys(html.unescape(item) for item in matches if part in item))


def list_json_urls_of_number_6(page: HttpResponse) -> list[str]:
    """Return the addresses on a page that lead to the JSON of the two versions with number 6."""
    return [link for link in find_links(page.content.decode(), "as=json") if "/versions/6/" in link]


def test_timeline_links_to_snapshot_of_each_of_two_versions_of_one_number(
    document_with_repeated_number: Store, support: Client
) -> None:
    addresses = list_json_urls_of_number_6(support.get(A1))
    pages = [support.get(address) for address in addresses]
    assert ["younger" in read_text(page) for page in pages] == [True, False]
    assert ["elder" in read_text(page) for page in pages] == [False, True]
    for page, other_address in zip(pages, reversed(addresses), strict=True):
        assert "More than one version has the number 6" in read_text(page)
        assert other_address.removesuffix(JSON) in find_links(page.content.decode(), "/versions/6/")
        download = find_links(page.content.decode(), "download=1")
        plain = html.unescape(re.sub(r"<[^>]*>", "", page.content.decode()))
        assert support.get(download[0]).content.decode() in plain


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_timeline_marks_versions_that_have_the_same_number(
    address: str, document_with_repeated_number: Store, support: Client
) -> None:
    page = support.get(address)
    assert read_text(page).count("The number of version 6 was given twice.") == 2
    assert "number of version 7 was" not in read_text(page)
    filtered = support.get(address, {"path": "/rate", "from": f"{minute(40):%Y-%m-%dT%H:%M}"})
    assert read_text(filtered).count("The number of version 6 was given twice.") == 1
    (both_text,) = [link for link in find_links(page.content.decode(), "from=6") if "to=6" in link]
    assert {"elder", "younger"} <= set(read_text(support.get(both_text)).split())


def test_version_page_without_moment_shows_later_of_two_versions_of_one_number(
    document_with_repeated_number: Store, support: Client
) -> None:
    for address in (f"{A1}versions/6/", f"{A1}versions/6/?at=nonsense"):
        assert "younger" in read_text(support.get(address))
    assert "More than one version" not in read_text(support.get(f"{A1}versions/7/"))
    removed = support.get(f"{A1}versions/6/?at=2001-01-01T00:00:00Z")
    assert removed.status_code == 404
    assert "Version 6 is not in the store" in read_text(removed)


def test_two_versions_of_one_number_can_be_compared(
    document_with_repeated_number: Store, support: Client
) -> None:
    same = support.get(f"{A1}compare/?from=6&to=6")
    assert "More than one version has the number 6" in read_text(same)
    _swapped, both_text = find_links(same.content.decode(), "fromAt=")
    compared = support.get(both_text)
    assert "Interest rate elder younger" in read_text(compared)
    assert "More than one version" not in read_text(compared)
    (swapped,) = find_links(compared.content.decode(), "fromAt=")
    assert "Interest rate younger elder" in read_text(support.get(swapped))
    document_with_repeated_number.add("A1", 6, {"rate": "middle"}, 40)
    for address in (both_text, A1):
        third = find_links(support.get(address).content.decode(), "to=6")[-1]
        assert "Interest rate middle younger" in read_text(support.get(third))


def test_timeline_links_each_version_to_comparison_with_newest_version(
    document_with_repeated_number: Store, support: Client
) -> None:
    document_with_repeated_number.add("A1", 7, {"rate": "other seven"}, 50)
    page = support.get(A1).content.decode()
    matches = re.findall(r'href="([^"]*)">compare with newest', page)
    page_text = [read_text(support.get(html.unescape(address))) for address in matches]
    assert [
        f"Interest rate {old} seven" in page
        for old, page in zip(("other seven", "younger", "elder", "five"), page_text, strict=True)
    ] == [True] * 4


def test_state_page_links_value_to_version_that_set_it(
    document_with_repeated_number: Store, support: Client
) -> None:
    document_with_repeated_number.add("A1", 7, {"rate": "seven", "name": "first"}, 70)
    document_with_repeated_number.add("A1", 8, {"rate": "younger", "name": "first"}, 80)
    page = support.get(f"{A1}state/").content.decode()
    assert len(find_links(page, "/versions/7/?at=")) == 1
    assert "first" in read_text(support.get(find_links(page, "/versions/7/?at=")[0]))


def test_unmasking_shows_value_of_the_right_version_when_two_versions_have_one_number(
    document_with_repeated_number: Store, client: Client
) -> None:
    FieldLabel.objects.create(entity="", path="/rate", russian="Ставка", sensitive=True)
    labels.forget_catalogue()
    client.force_login(User.objects.get(username="privacy"))
    for address, value in zip(
        list_json_urls_of_number_6(client.get(A1)), ("younger", "elder"), strict=True
    ):
        page = client.get(address).content.decode()
        (unmask,) = find_links(page, "/unmask/")
        answer = client.post(unmask, {"path": "/rate", "reason": "complaint 17"})
        assert value in read_text(answer)
        assert address.removesuffix(JSON) in find_links(answer.content.decode(), "/versions/6/")
