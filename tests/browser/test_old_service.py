"""What a clerk sees of versions that only the old service has, and where it does not answer."""

import os
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect
from pytest_django import DjangoDbBlocker

from annals import env
from history.base import clock
from history.fallback import client as calls
from tests.browser.conftest import Open
from tests.browser.picture import in_both
from tests.browser.test_screens import fits
from tests.db.store import T0, Store
from tests.old_service import OldService

pytestmark = [pytest.mark.browser, pytest.mark.django_db]

O1 = "/admin/history/product-instance/O1/"


def document(version: int) -> dict[str, object]:
    stages = ("Заявка", "Проверка", "Решение", "Подписание", "Выдача")
    return {"name": "Ипотека", "stage": stages[version], "rate": f"{18 - version}.4"}


@pytest.fixture(scope="module", autouse=True)
def moved(documents: None, django_db_blocker: DjangoDbBlocker) -> Iterator[OldService]:
    """O1: versions 0 to 2 and 4 in the old service, 3 and 4 in the store; 4 by another clock."""
    with django_db_blocker.unblock():
        for version in (3, 4):
            Store().add("O1", version, document(version), T0 + timedelta(days=version))
    with OldService() as service:
        for version in (0, 1, 2, 4):
            at = T0 + timedelta(days=version, minutes=7 if version == 4 else 0)
            service.add("O1", version, document(version), at, author="m.ivanov", client="top-crm")
        yield service


@pytest.fixture(autouse=True)
def in_use(moved: OldService, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "ANNALS_DEMO": "true",
        "ANNALS_FALLBACK_URL": moved.url,
        "ANNALS_FALLBACK_UNTIL": f"{clock.now():%Y-%m-%d}",
    }
    monkeypatch.setattr(settings, "ANNALS", env.read(given))
    monkeypatch.setattr(calls, "BREAKER", calls.Breaker())
    moved.status = 200


def pictured(page: Page, name: str) -> None:
    """Keep pictures in both languages where ANNALS_TEST_PICTURES names a folder."""
    if folder := os.environ.get("ANNALS_TEST_PICTURES"):
        in_both(page, f"{folder}/{name}", full_page=True)


def test_old_versions_are_marked_and_link_to_the_other_time(visit: Open) -> None:
    page = visit(O1)
    expect(page.locator(".version")).to_have_count(5)
    expect(page.get_by_text("из прежней системы")).to_have_count(3)
    pictured(page, "old-versions")
    assert fits(page)
    page.locator(".version-note a").first.click()
    expect(page.locator("main, #content").first).to_contain_text("Это версия 4 из прежней системы")
    pictured(page, "the-other-time")
