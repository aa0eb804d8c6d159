"""/api/docs/ against a real provider: a person logs in there with PKCE and tries a call."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from annals.embedded.postgres import Postgres
from tests.access.real_provider import Person, RealProvider
from tests.access.test_login import ROLES
from tests.access.web import Web
from tests.browser.conftest import Seen
from tests.browser.picture import launch
from tests.processes import own_database, server

__all__ = ["server"]

pytestmark = [pytest.mark.browser, pytest.mark.system]


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """No database of Django's is asked here."""


@pytest.fixture(scope="module")
def site(server: Postgres) -> Iterator[tuple[Web, RealProvider]]:
    with tempfile.TemporaryDirectory(prefix="annals-docs-") as name, ExitStack() as stack:
        folder = Path(name)
        web = Web(stack.enter_context(own_database(server)), folder)
        bank = stack.enter_context(RealProvider("bank", folder, web.url))
        bank.account("1", preferred_username="o.ops", name="Опс", groups=["annals-ops"])
        bank.account("2", preferred_username="n.new", name="Новый", groups=["annals-ops"])
        web.start([bank.declaration(ROLES)])
        stack.callback(web.stop)
        yield web, bank


@pytest.fixture
def context(site: tuple[Web, RealProvider]) -> Iterator[BrowserContext]:
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser.new_context(base_url=site[0].url)
        browser.close()


def test_only_the_page_may_ask_the_provider(site: tuple[Web, RealProvider]) -> None:
    web, bank = site
    policies = {
        address: requests.get(f"{web.url}{address}", timeout=10).headers["Content-Security-Policy"]
        for address in ("/api/docs/", "/api/docs/login/", "/api/schema/", "/admin/login/")
    }
    assert {address for address, policy in policies.items() if bank.url in policy} == {"/api/docs/"}
    assert not [policy for policy in policies.values() if "unsafe" in policy]


def log_in(page: Page, context: BrowserContext, subject: str) -> None:
    """Authorize on the page, and all that the provider asks in its window."""
    page.get_by_role("button", name="Authorize").first.click()
    dialog = page.locator(".auth-container", has_text="authorizationCode").filter(
        has_text="oidc-bank"
    )
    expect(dialog.locator("input[type=text]").first).to_have_value("annals-docs")
    with context.expect_page() as opened:
        dialog.locator("button", has_text="Authorize").click()
    window = opened.value
    window.fill("input[name=login]", subject)
    window.fill("input[name=password]", "x")
    window.click("button[type=submit]")
    with window.expect_event("close"):
        window.click("button[type=submit]")  # the consent
    expect(dialog.locator("button", has_text="Logout")).to_be_visible()
    page.locator(".btn-done").first.click()


def tried(page: Page) -> str:
    """The status of the answer to the call of completeness."""
    call = page.locator("#operations-completeness-completeness")
    call.locator(".opblock-summary-control").click()
    call.get_by_role("button", name="Try it out").click()
    call.get_by_role("button", name="Execute").click()
    status = call.locator(".live-responses-table tbody .response-col_status").first
    expect(status).to_contain_text("0")
    return status.inner_text().strip()[:3]


def test_a_person_logs_in_and_tries_a_call(
    site: tuple[Web, RealProvider], context: BrowserContext
) -> None:
    """With the roles that they have on the screens, and under their own name."""
    web, bank = site
    assert Person().log_in(web.url, bank, "1").status_code == 200
    page = context.new_page()
    page.set_default_timeout(15_000)
    seen = Seen(bank.url.removeprefix("http://"))
    page.on("pageerror", lambda error: seen.faults.append(str(error)))
    page.on("console", lambda said: said.type == "error" and seen.faults.append(said.text))
    page.goto("/api/docs/")
    log_in(page, context, "1")
    assert tried(page) == "200"
    assert not seen.faults
    assert "user=o.ops@bank" in web.log.read_text()


def test_a_person_without_a_login_here_is_refused(
    site: tuple[Web, RealProvider], context: BrowserContext
) -> None:
    page = context.new_page()
    page.set_default_timeout(15_000)
    page.goto("/api/docs/")
    log_in(page, context, "2")
    assert tried(page) == "401"
