"""The pages of operators in a browser, in two widths and both themes.

They fit the window, axe-core finds no violations, and each entry of the access journal is one line.
"""

from datetime import timedelta

import pytest
from playwright.sync_api import expect
from pytest_django import DjangoDbBlocker

from history.common import clock
from history.kinds.entities import ROOT
from ingest.models import JobRun, Ledger, Pace, Quarantined
from tests.browser.conftest import BrowserFaults, Open
from tests.browser.test_axe import find_violations
from tests.browser.test_screens import UNFOLD, WHOLE, has_no_overflow

pytestmark = [pytest.mark.browser, pytest.mark.django_db]

assert ROOT is not None
TOPIC = ROOT.topics[0]
SCREENS = [
    "/admin/operations/",
    "/admin/days/",
    f"/admin/days/?day={clock.now():%Y-%m-%d}",
    "/admin/quarantine/",
    f"/admin/quarantine/ask/?action=retry&reason=not_json&topic={TOPIC}",
    "/admin/completeness/",
]
HEIGHTS = "[...document.querySelectorAll('.journal tbody tr')].map(row => row.offsetHeight)"


@pytest.fixture(scope="module", autouse=True)
def operations_figures(documents: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Store a halted and a normal topic partition, bad messages, a job, and reading rates."""
    with django_db_blocker.unblock():
        now = clock.now()
        for number in range(2):
            Ledger.objects.create(
                topic=TOPIC,
                topic_id="t" * 22,
                partition=number,
                first_offset=0,
                next_offset=10**9,
                read=10**9,
                stored=10**9,
                high_watermark=10**9,
                end_known_at=now,
                updated_at=now,
                checked_at=now,
                halted_at=None if number else now,
                halted_why="" if number else "20 bad messages in a row",
            )
            Quarantined.objects.create(
                topic=TOPIC,
                topic_id="t",
                partition=number,
                offset=7,
                reason="not_json",
                detail="Ш" * 300,
                client_id="w" * 64 if number else "",
                first_seen=now,
            )
            Pace.objects.create(
                slot=number,
                at=now - timedelta(minutes=20 - 10 * number),
                came=900 * number,
                read=800 * number,
                stored=800 * number,
            )
        JobRun.objects.create(name=JobRun.RETRY, started_at=now, outcome="stored 2")


@pytest.mark.parametrize("width", [390, 1280])
def test_operations_pages_fit_the_window(visit: Open, width: int) -> None:
    page = visit("/admin/", login="ops", viewport={"width": width, "height": 900})
    for address in SCREENS:
        page.goto(address)
        page.evaluate(UNFOLD)
        assert has_no_overflow(page), address


@pytest.mark.parametrize("language", ["ru", "en"])
def test_axe_finds_no_violations_on_operations_pages(
    visit: Open, axe_source: str, language: str
) -> None:
    page = visit("/admin/", login="ops")
    page.context.add_cookies([{"name": "django_language", "value": language, "url": page.url}])
    faults = {}
    for address in SCREENS:
        page.goto(address)
        if violations := find_violations(page, axe_source, language):
            faults[address] = violations
    assert faults == {}


def test_operator_goes_from_operations_page_to_quarantine_and_discards_messages(
    visit: Open,
) -> None:
    page = visit("/admin/", login="ops")
    expect(page.locator(".verdict h1")).to_contain_text("Reading has stopped")
    expect(page.locator(".rates path")).to_have_count(2)
    page.locator(".figures").get_by_role("link", name="Quarantine").click()
    page.get_by_role("link", name="Discard…").first.click()
    page.get_by_role("button", name="Discard").click()
    expect(page.locator(".errorlist")).to_be_visible()
    page.get_by_label("Reason").fill("service was told")
    page.get_by_role("button", name="Discard").click()
    expect(page.locator(".messagelist")).to_contain_text("Recorded")
    expect(page.locator(".asked li")).to_contain_text("service was told")


@pytest.mark.parametrize(("width", "line"), [(390, 60), (1280, 44)])
def test_each_journal_entry_fits_on_one_line(visit: Open, width: int, line: int) -> None:
    visit(WHOLE)
    visit(f"/admin/history/?q={'длинное' * 20}")
    page = visit("/admin/journal/", login="privacy", viewport={"width": width, "height": 800})
    heights = page.evaluate(HEIGHTS)
    assert heights
    assert max(heights) <= line
    assert has_no_overflow(page)
    page.locator(".journal summary").first.click()
    expect(page.locator(".journal details .panel").first).to_be_in_viewport()
    assert has_no_overflow(page)


def test_operations_page_refreshes_itself_and_warns_when_server_does_not_answer(
    visit: Open, browser_faults: BrowserFaults
) -> None:
    page = visit("/admin/", login="ops")
    page.clock.install()
    page.goto("/admin/operations/")
    query = []
    page.on(
        "request", lambda request: query.append((request.url, request.headers.get("x-annals-poll")))
    )
    page.evaluate("document.querySelector('.verdict h1').textContent = 'old'")
    page.clock.fast_forward(31_000)
    expect(page.locator(".verdict h1")).not_to_have_text("old")
    # The page marks its own requests, so that they do not prolong an idle login.
    assert [how for url, how in query if url == page.url] == ["1"]
    expect(page.locator(".figures time").first).not_to_contain_text("UTC")
    alert = page.get_by_role("alert")
    page.route("**/operations/", lambda route: route.fulfill(status=503))
    page.clock.fast_forward(31_000)
    expect(alert).to_contain_text("No answer since")
    assert browser_faults.faults.pop(0).startswith("503: ")
    assert browser_faults.faults.pop().startswith(
        "console: "
    )  # the browser's console reports it, too
    page.unroute("**/operations/")
    page.clock.fast_forward(31_000)
    expect(alert).to_have_count(0)
    page.context.clear_cookies()
    page.clock.fast_forward(31_000)
    expect(page.locator("input[name=username], form")).not_to_have_count(0)
    expect(page.locator(".verdict")).to_have_count(0)
