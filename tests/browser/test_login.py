"""Login and logout in a browser with two real identity providers.

tests/access/test_login.py has the tests that need no browser.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from annals.embedded.postgres import EmbeddedPostgres
from tests.access.real_provider import RealProvider
from tests.access.web import ProductionWeb, age_sessions
from tests.browser.picture import launch_browser, take_in_both_languages, take_picture
from tests.processes import create_own_database
from tests.processes import server as postgres

__all__ = ["postgres"]  # tests/browser has a `server` of its own

pytestmark = [pytest.mark.browser, pytest.mark.system]

# URLs of other hosts. The pages of the provider request a font from one.
ELSEWHERE = re.compile(r"^(?!http://127\.0\.0\.1[:/])")
BANK, PARTNER = "Учётная запись банка", "Партнёрский портал"


@dataclass
class LoginSite:
    """Annals, its two identity providers, and an open page of a browser."""

    web: ProductionWeb
    bank: RealProvider
    partner: RealProvider
    page: Page
    faults: list[str]  # errors of pages

    def take_picture(self, name: str) -> None:
        """Take a picture of the page if ANNALS_TEST_PICTURES names a folder for pictures."""
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        if folder := os.environ.get("ANNALS_TEST_PICTURES"):
            take_picture(self.page, f"{folder}/{name}", "ru")

    def log_in_at_provider(self, login: str) -> None:
        """Log in on the pages of a provider."""
        self.page.fill("[name=login]", login)
        self.page.fill("[name=password]", "x")
        self.page.click("[type=submit]")
        self.page.click("[type=submit]")  # allow the provider to give the name to Annals


@pytest.fixture(scope="module")
def running_providers(postgres: EmbeddedPostgres) -> Iterator[LoginSite]:
    with tempfile.TemporaryDirectory(prefix="annals-login-") as name, ExitStack() as stack:
        folder = Path(name)
        database = stack.enter_context(create_own_database(postgres))
        web = ProductionWeb(database, folder)
        bank = stack.enter_context(RealProvider("bank", folder, web.url))
        partner = stack.enter_context(RealProvider("partner", folder, web.url))
        roles = {"staff": "support"}
        bank.write_account(
            "1", preferred_username="m.petrov", name="Петров Михаил", groups=["staff"]
        )
        partner.write_account(
            "1", preferred_username="a.orlova", name="Орлова Анна", groups=["staff"]
        )
        web.start(
            [
                bank.make_declaration(roles) | {"title": BANK},
                partner.make_declaration(roles) | {"title": PARTNER},
            ]
        )
        stack.callback(web.stop)
        browser = launch_browser(stack.enter_context(sync_playwright()))
        stack.callback(browser.close)
        context = browser.new_context(
            base_url=web.url, locale="ru-RU", viewport={"width": 900, "height": 480}
        )
        context.set_default_timeout(60_000)
        context.route(ELSEWHERE, lambda route: route.abort())
        page = context.new_page()
        faults: list[str] = []
        page.on(
            "console",
            lambda message: (
                faults.append(message.text)
                if message.type == "error"
                and message.location["url"].startswith(web.url)
                and "status of" not in message.text
                else None
            ),
        )
        page.on("pageerror", lambda error: faults.append(str(error)))
        yield LoginSite(web, bank, partner, page, faults)


@pytest.fixture
def site(running_providers: LoginSite) -> Iterator[LoginSite]:
    running_providers.page.context.clear_cookies()
    yield running_providers
    assert not running_providers.faults


def test_login_works_with_each_of_two_providers(site: LoginSite) -> None:
    page = site.page
    page.goto("/admin/completeness/")
    page_text = [f"Log in with {item}" for item in (BANK, PARTNER)]
    expect(page.locator(".provider")).to_have_text(page_text)
    expect(page.locator("#login-form")).not_to_be_visible()
    site.take_picture("login")
    page.click(f"text={BANK}")
    site.log_in_at_provider("1")
    expect(page).to_have_url(f"{site.web.url}/admin/completeness/")
    expect(page.locator("#user-tools")).to_contain_text("Петров Михаил")
    page.click("#logout-form [type=submit]")
    expect(page.locator(".card-text h1")).to_have_text("You are logged out")
    expect(page.locator(".card-text")).to_contain_text(BANK)
    site.take_picture("logged-out")
    page.click("text=Log out there too")
    assert page.url.startswith(site.bank.url)
    page.goto("/admin/login/")
    page.click(f"text={PARTNER}")
    site.log_in_at_provider("1")
    expect(page.locator("#user-tools")).to_contain_text("Орлова Анна")
    page.click("#logout-form [type=submit]")
    page.click(".language [lang=en]")  # the page after a logout cannot be opened again
    expect(page.locator(".provider").first).to_have_text(f"Log in with {BANK}")


def test_login_after_expired_session_returns_to_the_requested_page(site: LoginSite) -> None:
    """The login page says that the session ended."""
    page = site.page
    page.goto("/admin/")
    page.click(f"text={BANK}")
    site.log_in_at_provider("1")
    expect(page.locator("#user-tools")).to_contain_text("Петров Михаил")
    age_sessions(site.web, 3_700, "annals_seen")
    page.goto("/admin/history/?q=A1")
    expect(page.locator(".over")).to_contain_text("Your session has ended")
    site.take_picture("over")
    if folder := os.environ.get("ANNALS_TEST_PICTURES"):
        take_in_both_languages(page, f"{folder}/login")  # docs/access.md shows it
    page.click(f"text={BANK}")  # the provider still knows the person
    assert urlsplit(page.url)[2:4] == ("/admin/history/", "q=A1")
