"""The API's page in a browser: drawn under the strict policy, and a call can be tried there."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open

pytestmark = [pytest.mark.browser, pytest.mark.django_db]


def test_every_call_is_drawn_and_one_is_tried(visit: Open) -> None:
    visit("/admin/")  # the session of the screens is good for the API
    page = visit("/api/docs/", login="support")
    expect(page.locator(".opblock")).to_have_count(12)
    call = page.locator("#operations-history-version")
    call.locator(".opblock-summary-control").click()
    call.get_by_role("button", name="Try it out").click()
    call.locator("tr[data-param-name=id] input").fill("A1")
    call.locator("tr[data-param-name=version] input").fill("7")
    call.get_by_role("button", name="Execute").click()
    status = call.locator(".live-responses-table tbody .response-col_status").first
    expect(status).to_contain_text("200")
    expect(call.locator(".live-responses-table")).to_contain_text('"rate": "7.5"')
