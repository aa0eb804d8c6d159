"""The timeline of a document that has some of its versions only in the old service."""

import os
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect
from pytest_django import DjangoDbBlocker

from annals.configuration import env
from history.common import clock
from history.timeline.fallback import client as calls
from tests.browser.conftest import Open
from tests.browser.picture import take_in_both_languages
from tests.browser.test_screens import has_no_overflow
from tests.db.store import T0, Store
from tests.old_service import OldServiceServer

pytestmark = [pytest.mark.browser, pytest.mark.django_db]

O1 = "/admin/history/product-instance/O1/"


def make_document(version: int) -> dict[str, object]:
    stages = ("Заявка", "Проверка", "Решение", "Подписание", "Выдача")
    return {"name": "Ипотека", "stage": stages[version], "rate": f"{18 - version}.4"}


@pytest.fixture(scope="module", autouse=True)
def document_in_both_systems(
    documents: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[OldServiceServer]:
    """Document O1, with versions 0 to 2 and 4 in the old service, and 3 and 4 in the store.

    Version 4 has different moments in the old service and in the store.
    """
    with django_db_blocker.unblock():
        for version in (3, 4):
            Store().add("O1", version, make_document(version), T0 + timedelta(days=version))
    with OldServiceServer() as service:
        for version in (0, 1, 2, 4):
            moment = T0 + timedelta(days=version, minutes=7 if version == 4 else 0)
            service.add_version(
                "O1", version, make_document(version), moment, author="m.ivanov", client="top-crm"
            )
        yield service


@pytest.fixture(autouse=True)
def old_service_in_use(
    document_in_both_systems: OldServiceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "ANNALS_DEMO": "true",
        "ANNALS_LANGUAGE": "en",
        "ANNALS_FALLBACK_URL": document_in_both_systems.url,
        "ANNALS_FALLBACK_UNTIL": f"{clock.now():%Y-%m-%d}",
    }
    monkeypatch.setattr(settings, "ANNALS", env.read_settings(variables))
    calls.BREAKER.reset()
    document_in_both_systems.status = 200


def take_pictures(page: Page, name: str) -> None:
    """Take pictures in both languages if ANNALS_TEST_PICTURES names a folder for pictures."""
    if folder := os.environ.get("ANNALS_TEST_PICTURES"):
        take_in_both_languages(page, f"{folder}/{name}", full_page=True)


def test_timeline_marks_versions_of_old_service_and_links_to_them(
    visit: Open,
) -> None:
    page = visit(O1)
    expect(page.locator(".version")).to_have_count(5)
    expect(page.get_by_text("from the old system")).to_have_count(3)
    take_pictures(page, "old-versions")
    assert has_no_overflow(page)
    page.locator(".version-note a").first.click()
    expect(page.locator("main, #content").first).to_contain_text(
        "This is version 4 of the old system"
    )
    take_pictures(page, "the-other-time")
