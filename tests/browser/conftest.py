"""Fixtures with a browser that opens the screens, and notes errors and requests to other hosts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from django.db import connection
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from pytest_django import DjangoDbBlocker
from pytest_django.live_server_helper import LiveServer

from history.common import clock
from history.kinds.entities import ROOT
from history.models import FieldLabel, GapRun, Person, VersionGap
from history.store.catalogue import labels
from tests import npm
from tests.browser.picture import launch_browser
from tests.db.store import T0, Store

LONG = "Оченьдлинноесловобезпробелов" * 8


@dataclass
class BrowserFaults:
    """Collects descriptions of errors on pages, and of requests to other hosts than `host`."""

    host: str
    faults: list[str] = field(default_factory=list)

    def watch_page(self, page: Page) -> None:
        page.on("console", lambda message: self._note_console(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda request: self._note_request(request.url))
        page.on("response", lambda response: self._note_response(response.status, response.url))

    def _note_console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"console: {text}")

    def _note_request(self, url: str) -> None:
        if urlsplit(url).netloc not in ("", self.host):
            self.faults.append(f"another host: {url}")

    def _note_response(self, status: int, url: str) -> None:
        if status >= 400:
            self.faults.append(f"{status}: {url}")


Open = Callable[..., Page]
State = dict[str, Any]


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """Replace pytest-django's fixture of this name, so that the mark django_db does not start a
    transaction.

    Django refuses to start a transaction in the thread of playwright's event loop. And threads of
    the web server would not see rows of an uncommitted transaction.
    """


@pytest.fixture(scope="module")
def documents(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Store documents for the tests of a module. The tests only read these documents.

    A1 is an application with 120 versions. W1 is an application with texts too wide for a
    telephone. R1 is a participant of A1.
    """
    with django_db_blocker.unblock():
        before = _list_tables()
        _store_documents(Store())
    yield
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            for table in _list_tables() - before:
                cursor.execute(f'DROP TABLE "{table}"')
        call_command("flush", interactive=False, verbosity=0)


def _store_documents(store: Store) -> None:
    Person.objects.create(login="m.ivanov", full_name="Иванов Михаил", kind="person")
    labels.forget_catalogue()
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
        moment = T0 + timedelta(hours=number, microseconds=510186)
        store.add("A1", number, document, moment, author="m.ivanov" if number % 2 else "x.unknown")
    wide: dict[str, object] = {"name": LONG, "list": [{"pid": LONG, "a": {LONG: LONG}}]}
    store.add("W1", 0, {**wide, LONG: LONG}, 0)
    wide["list"] = [{"pid": LONG, "a": {LONG: "y"}}]
    store.add("W1", 3, {**wide, LONG: "x"}, 1, author=LONG[:64], client=LONG[:64])
    passport = FieldLabel.objects.filter(entity="participant-role", path="/passport")
    passport.update(sensitive=True)
    person = {"fullName": "Рожков Олег", "passport": {"series": "4509", "number": "112233"}}
    store.add("R1", 0, person, 2, entity="participant-role", application="A1")
    changed = {**person, "passport": {"series": "4510", "number": "998877"}}
    store.add("R1", 1, changed, 3, entity="participant-role", application="A1")
    now = clock.now()
    GapRun.objects.create(
        id=1, started_at=now, seconds=1, days=3, quarantined=0, removed_before=now.date()
    )
    VersionGap.objects.create(
        entity=ROOT.name,
        document="Ш" * 32,
        first=1,
        last=2_147_483_646,
        beginning=False,
        client_id="w" * 64,
        since=now - timedelta(days=2),
        until=now,
        found_at=now,
        closed_at=None,
        outcome="",
    )


def _list_tables() -> set[str]:
    return set(connection.introspection.table_names())


@pytest.fixture(scope="module")
def server(documents: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Run a web server for the tests of a module, and yield the address of the web server.

    pytest-django's fixture live_server is not used, because it would empty the database.
    """
    with django_db_blocker.unblock():
        running = LiveServer("localhost")
        yield running.url
        running.stop()


@pytest.fixture(scope="module")
def browser(server: str) -> Iterator[Browser]:
    """A browser. While the browser is open, tests must not use the database in this thread.

    Django refuses to use the database in the thread of playwright's event loop.
    """
    with sync_playwright() as playwright:
        browser = launch_browser(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def sessions() -> dict[str, State]:
    """The browser cookies of each login that has logged in, by login."""
    return {}


@pytest.fixture
def browser_faults(server: str) -> Iterator[BrowserFaults]:
    """Collect the browser's errors on pages that the test opens, and requests to foreign hosts.

    The test fails unless the list `faults` is empty at the end. A test that expects an error must
    remove it from the list.
    """
    noticed = BrowserFaults(urlsplit(server).netloc)
    yield noticed
    assert not noticed.faults


@pytest.fixture
def visit(
    server: str, browser: Browser, sessions: dict[str, State], browser_faults: BrowserFaults
) -> Iterator[Open]:
    """A function that opens a page in a new browser context, logged in unless login is empty."""
    contexts: list[BrowserContext] = []

    def visit(path: str, login: str = "support", **options: Any) -> Page:
        options = {"timezone_id": "Europe/Moscow", "locale": "ru-RU", **options}
        context = browser.new_context(base_url=server, storage_state=sessions.get(login), **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        browser_faults.watch_page(page)
        page.goto(path)
        if login and login not in sessions:
            log_in(page, login)
            sessions[login] = dict(context.storage_state())
        return page

    yield visit
    for context in contexts:
        context.close()


def log_in(page: Page, login: str) -> None:
    """Fill in the login form that is shown instead of the page."""
    page.fill("#id_username", login)
    page.fill("#id_password", login)
    page.click("#login-form [type=submit]")
    page.wait_for_selector("#user-tools")


@pytest.fixture(scope="session")
def axe_source() -> str:
    """The JavaScript of axe-core, which finds violations of accessibility."""
    folder = npm.install_packages(Path(__file__).parent / "axe", "axe-core")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()
