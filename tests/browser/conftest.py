"""A browser on the screens, which notes everything that a clean page must not do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.db import connection
from playwright.sync_api import BrowserContext, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from history import labels
from history.models import Person
from tests import need
from tests.db.store import T0, Store

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
LONG = "Оченьдлинноесловобезпробелов" * 8


@dataclass
class Seen:
    """What went wrong in the browser, in words."""

    host: str
    faults: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda said: self._console(said.type, said.text))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda asked: self._request(asked.url))
        page.on("response", lambda got: self._response(got.status, got.url))

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"console: {text}")

    def _request(self, url: str) -> None:
        if urlsplit(url).netloc not in ("", self.host):
            self.faults.append(f"another host: {url}")

    def _response(self, status: int, url: str) -> None:
        if status >= 400:
            self.faults.append(f"{status}: {url}")


Open = Callable[..., Page]


@pytest.fixture
def documents(transactional_db: None) -> Iterator[Store]:
    """A1: 120 versions of an application. W1: an application too wide for a telephone. R1: a
    participant of A1. The days made for them go with the test."""
    before = _tables()
    store = Store()
    Person.objects.create(login="m.ivanov", full_name="Иванов Михаил", kind="person")
    labels.forget()
    for number in range(120):
        document = {
            "name": "Ипотека",
            "number": "7708-2026-1",
            "stage": "Подписание",
            "rate": f"{number}.5",
            "createdAt": "2026-01-31T22:30:00",
            "remark": "Клиент просит перенести сделку. " * 10 + f"Звонок {number}.",
            "documents": [{"pid": "D1", "name": "Паспорт", "pages": number}],
        }
        author = "m.ivanov" if number % 2 else "x.unknown"
        store.add("A1", number, document, T0 + timedelta(hours=number, microseconds=510186),
                  author=author)  # fmt: skip
    store.add("W1", 0, {"name": LONG, LONG: LONG, "list": [{"pid": LONG, "a": {LONG: LONG}}]}, 0)
    store.add("W1", 3, {"name": LONG, LONG: "x", "list": [{"pid": LONG, "a": {LONG: "y"}}]}, 1,
              author=LONG[:64], client=LONG[:64])  # fmt: skip
    store.add("R1", 0, {"fullName": "Рожков Олег"}, 2, entity="participant-role", application="A1")
    yield store
    with connection.cursor() as cursor:
        for table in _tables() - before:
            cursor.execute(f'DROP TABLE "{table}"')


def _tables() -> set[str]:
    return set(connection.introspection.table_names())


@pytest.fixture
def browser_seen(live_server: LiveServer) -> Iterator[Seen]:
    """Empty at the end of every test, or the test fails."""
    seen = Seen(urlsplit(live_server.url).netloc)
    yield seen
    assert not seen.faults


@pytest.fixture
def visit(documents: Store, live_server: LiveServer, browser_seen: Seen) -> Iterator[Open]:
    """Opens a page of the live server, in a context of its own. The database must not be asked
    while it is in use: playwright's event loop runs in this thread."""
    program = need.chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        contexts: list[BrowserContext] = []

        def visit(path: str, login: str = "support", **options: object) -> Page:
            options = {"timezone_id": "Europe/Moscow", "locale": "ru-RU", **options}
            context = browser.new_context(base_url=live_server.url, **options)  # type: ignore[arg-type]
            contexts.append(context)
            page = context.new_page()
            page.set_default_timeout(10_000)
            browser_seen.watch(page)
            page.goto(path)
            if login:
                page.fill("#id_username", login)
                page.fill("#id_password", login)
                page.click("#login-form [type=submit]")
                page.wait_for_selector("#user-tools")
            return page

        yield visit
        for context in contexts:
            context.close()
        browser.close()
