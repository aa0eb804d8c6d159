"""On the page that shows who last changed each field, every link leads to the right version."""

import html
import json
import re
from typing import Any

import pytest
from django.test import Client

from tests.db.screens import A1, WHOLE, find_link, read_text
from tests.db.store import Store

LINE = re.compile(
    r"<tr>\s*<th scope=\"row\">(.*?)</th>.*?<a class=\"note\" href=\"[^\"]*/(\d+)/\?at=", re.DOTALL
)
LINK = re.compile(r'<a href="([^"]*)" title="(.*?) · ')


def read_field_links(support: Client) -> dict[str, tuple[str, int]]:
    """Return the link and the version number of each linked field, by JSON pointer of the field."""
    page = support.get(f"{A1}state/").content.decode()
    result = {}
    for head, version in LINE.findall(page):
        for address, pointer in LINK.findall(head):
            result[html.unescape(pointer)] = (html.unescape(address), int(version))
    return result


def list_shown_versions(support: Client, values: str) -> list[int]:
    """Follow a link from the page `values` to a timeline, and return the versions shown there.

    Args:
        values: The address of a page that lists the values of a field.
    """
    [address] = re.findall(r'toolbar-side"><a href="([^"]*)', support.get(values).content.decode())
    page = support.get(html.unescape(address)).content.decode()
    return [int(version) for version in re.findall(r'id="v(\d+)"', page)]


def store_versions(store: Store, states: list[Any]) -> None:
    for version, state in enumerate(states):
        store.add("A1", version, json.dumps(state, default=str), version)


def test_state_page_links_values_of_moved_list_item_to_their_versions(
    store: Store, support: Client
) -> None:
    a, b = {"pid": "a", "n": 1}, {"pid": "b", "n": 1}
    store_versions(
        store,
        [
            {"items": [a, b]},
            {"items": [a, {**b, "n": 2}]},
            {"items": [{**b, "n": 2}, a]},
            {"items": [{**b, "n": 2}, {**a, "n": 3}]},
        ],
    )
    links = read_field_links(support)
    assert {pointer: version for pointer, (_, version) in links.items()} == {
        "/items/0/pid": 0,
        "/items/0/n": 1,
        "/items/1/pid": 0,
        "/items/1/n": 3,
    }
    assert list_shown_versions(support, links["/items/0/n"][0]) == [1]
    assert list_shown_versions(support, links["/items/1/n"][0]) == [3]


ODD_KEYS = ["*", "[x=y]", "[", "a/b", "~", "~4", " ", " x ", "", "0", "я" * 400]


@pytest.mark.parametrize("key", ODD_KEYS, ids=range(len(ODD_KEYS)))
def test_state_page_links_fields_with_unusual_names_to_their_versions(
    store: Store, support: Client, key: str
) -> None:
    store_versions(store, [{key: 1, "other": 1}, {key: 2, "other": 1}, {key: 2, "other": 2}])
    links = read_field_links(support)
    second = links.pop("/other")
    first_link = next(iter(links.values()))
    assert first_link[1] == 1
    assert list_shown_versions(support, first_link[0]) == [1]
    assert list_shown_versions(support, second[0]) == [2]


def test_state_page_links_item_to_changes_of_whole_list_when_items_have_no_identifying_field(
    store: Store, support: Client
) -> None:
    store_versions(
        store, [{"tags": ["x"]}, {"tags": ["x", "y"]}, {"tags": ["y", "x"]}, {"tags": ["y", "x"]}]
    )
    links = read_field_links(support)
    assert links["/tags/0"][1] == 1
    assert list_shown_versions(support, links["/tags/0"][0]) == [2, 1]


def test_state_page_omits_link_that_would_be_too_long(store: Store, support: Client) -> None:
    store_versions(store, [{"я" * 2000: 1, "b": 1}])
    assert list(read_field_links(support)) == ["/b"]


def test_state_page_shows_many_fields_on_several_pages(
    store: Store, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("components.links", "pages.state"):
        monkeypatch.setattr(f"history.admin.{module}.MOST_ROWS", 100)
    store_versions(store, [{f"k{n:04}": n for n in range(250)} | {"list": [1]}])
    address, seen, ranges = f"{A1}state/", list[str](), list[str]()
    while address:
        page = support.get(address)
        seen += re.findall(r'title="/(k\d+) · ', page.content.decode())
        ranges += re.findall(r"Fields [0-9–]+ of 251", read_text(page))
        address = find_link(page.content.decode(), "next")
    assert seen == [f"k{n:04}" for n in range(250)]
    assert ranges == [f"Fields {part} of 251" for part in ("1–100", "101–200", "201–251")]
    back = find_link(page.content.decode(), "prev")
    assert "Fields 101–200 of 251" in read_text(support.get(back))
    for wrong in ("x", "-1", "251", "9" * 30, "٣"):
        assert "Fields 1–100 of 251" in read_text(support.get(f"{A1}state/", {"after": wrong}))


@pytest.fixture
def document_of_fast_clock(store: Store) -> Store:
    """Store three versions. Version 1 has a later moment than version 2.

    The clock of the service that made version 1 was fast.
    """
    store.add("A1", 0, {"name": "Ипотека", "rate": "10"}, 0)
    store.add("A1", 2, {"name": "Автокредит", "rate": "12"}, 1)
    store.add("A1", 1, {"name": "Ипотека", "rate": "11"}, 5)
    return store


@pytest.mark.parametrize("address", [A1, f"{A1}?type=UPDATE", WHOLE, f"{A1}state/"])
def test_heading_shows_highest_version_number_when_a_producer_clock_was_fast(
    document_of_fast_clock: Store, support: Client, address: str
) -> None:
    page = support.get(address).content.decode()
    assert "<h1>Автокредит</h1>" in page
    assert "version 2 ·" in page


def test_timeline_links_to_comparison_with_highest_number_when_producer_clock_was_fast(
    document_of_fast_clock: Store, support: Client
) -> None:
    page = support.get(A1).content.decode()
    assert f"{A1}compare/?from=1&amp;to=2" in page
    assert re.search(r"to=1\b(?!\d|\.)", page) is None
    form = support.get(f"{A1}compare/").content.decode()
    assert 'name="to" min="0" required value="2"' in form
