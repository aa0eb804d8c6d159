"""Every link on the screens leads to a page that the role of the login may see.

The tests open the pages in each role, and follow all links on the pages.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import Resolver404, resolve

from annals.access.roles import ROLES
from history.models import FieldLabel
from tests.access.test_masking_properties import set_marks
from tests.access.test_permissions import objects_by_model
from tests.db.conftest import store
from tests.db.store import Store

__all__ = ["objects_by_model", "store"]

STARTS = ["/admin/", "/admin/login/", "/admin/applications/B1/", "/api/docs/"]
# How many addresses with the same route and the same number of parameters are opened.
ALIKE = 4
# No more pages than this are opened.
PAGES = 300


class PageLinks(HTMLParser):
    """The addresses in a page: those of other pages, and those of files that the page loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.pages: list[str] = []
        self.files: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "a" and attributes.get("href"):
            self.pages.append(attributes["href"] or "")
        elif tag == "form" and (attributes.get("method") or "get").lower() == "get":
            self.pages.append(attributes.get("action") or "")
        elif attributes.get("src"):
            self.files.append(attributes["src"] or "")
        elif tag == "link" and attributes.get("href"):
            self.files.append(attributes["href"] or "")


@pytest.fixture
def site_with_all_kinds_of_data(
    store: Store, objects_by_model: dict[str, object]
) -> Iterator[None]:
    """Store an application with children, all kinds of changes, masked fields, and ids that are
    hard to quote in a link."""
    for number in range(60):
        document = {
            "number": "7708-2026-1",
            "rate": str(number),
            "list": [{"pid": "x", "n": number}],
            "passport": {"series": str(number // 10), "number": "112233"},
        }
        store.add("B1", number, document, number)
    for child in ("R1", "r/at", "r?b#c", "Ключ 1"):
        for number in (0, 2):
            child_document = {"fullName": f"Рожков {number}", "passport": {"series": "4509"}}
            kind = {"entity": "participant-role", "application": "B1"}
            store.add(child, number, child_document, 100 + number, **kind)
    FieldLabel.objects.create(path="/passport/number", russian="Номер паспорта", sensitive=True)
    set_marks("/passport")
    yield
    set_marks()


# The addresses of versions that the fixture does not store.
GAP = re.compile(r"/participant-role/.+/versions/1/$")


def _describe_error_answer(address: str, found_on: str, answer: Any) -> dict[str, str]:
    """Return {address: description} for an answer whose status is not 200.

    Return {} for the page of a missing version that explains why the version is missing. Such a
    page has the status 404.
    """
    says_why = GAP.search(address) and 'class="notice"' in answer.content.decode()
    if answer.status_code == 404 and says_why:
        return {}
    return {address: f"{answer.status_code}, linked from {found_on}"}


def open_linked_pages(client: Client, starts: list[str]) -> tuple[dict[str, str], int]:
    """Open the pages at the addresses `starts`, and the pages to which opened pages link.

    Returns:
        The errors as a dict from the address of a page to a description of the error on that page,
        and the number of opened pages.
    """
    wrong: dict[str, str] = {}
    todo = deque((start, "") for start in starts)
    alike: Counter[tuple[str, int]] = Counter()
    seen: set[str] = set()
    opened = 0
    while todo and opened < PAGES:
        address, found_on = todo.popleft()
        parts = urlsplit(address)
        address = parts._replace(fragment="").geturl()
        if address in seen:
            continue
        seen.add(address)
        try:
            route = resolve(parts.path.replace("%2F", "/")).route
        except Resolver404:
            route = parts.path
        key = (route, min(len(parse_qsl(parts.query, True)), 2))
        alike[key] += 1
        if alike[key] > ALIKE:
            continue
        answer: Any = client.get(address)
        if answer.streaming:  # a download gives back its place when it has been read
            answer.getvalue()
        opened += 1
        if answer.status_code == 302:
            todo.append((urljoin(address, answer.headers["Location"]), found_on))
            to_login = answer.headers["Location"].startswith("/admin/login/")
            if to_login and "_auth_user_id" in client.session:
                wrong[address] = f"asks for a log-in, linked from {found_on}"
            continue
        if answer.status_code != 200:
            wrong |= _describe_error_answer(address, found_on, answer)
            continue
        if not answer.headers["Content-Type"].startswith("text/html") or answer.streaming:
            continue
        links = PageLinks(answer.content.decode())
        addresses = [urljoin(address, page) for page in links.pages]
        todo += [(link, address) for link in addresses if not urlsplit(link).scheme]
        for file in {urljoin(address, file_link) for file_link in links.files} - seen:
            seen.add(file)
            got = client.get(file)
            if got.status_code != 200:
                wrong[file] = f"{got.status_code}, needed by {address}"
            got.getvalue()  # reading the answer closes the file
    return wrong, opened


# The links are the same in both languages, so two roles are enough for English.
@pytest.mark.parametrize(
    "role, language", [*((role, "ru") for role in (None, *ROLES)), (None, "en"), ("privacy", "en")]
)
def test_links_of_every_page_work_for_each_role(
    role: str | None, language: str, client: Client, site_with_all_kinds_of_data: None
) -> None:
    client.raise_request_exception = False
    client.cookies["django_language"] = language
    if role is not None:
        client.force_login(User.objects.get(username=role))
        starts = STARTS if role != "ops" else [s for s in STARTS if "applications" not in s]
    else:
        starts = ["/admin/login/", "/api/docs/"]
    wrong, opened = open_linked_pages(client, starts)
    assert wrong == {}
    least = 3 if role is None else 8 if role == "ops" else 40
    assert least <= opened < PAGES
