"""The page of versions that never arrived in a narrow window: each gap whole, nothing cut."""

from datetime import timedelta

import pytest
from pytest_django import DjangoDbBlocker

from history.base import clock
from history.entities import ROOT
from history.gap_models import GapRun, VersionGap
from tests.browser.conftest import Open
from tests.browser.test_screens import fits

pytestmark = [pytest.mark.browser, pytest.mark.django_db]

# How far each cell, and what is in it, reaches to the right.
REACH = "[...document.querySelectorAll('.gap-list td')].map(c => c.getBoundingClientRect().right)"


@pytest.fixture(scope="module", autouse=True)
def found(documents: None, django_db_blocker: DjangoDbBlocker) -> None:
    now = clock.now()
    with django_db_blocker.unblock():
        GapRun.objects.create(
            id=1, started_at=now, seconds=1, days=3, quarantined=0, removed_before=now.date()
        )
        VersionGap.objects.create(
            entity=ROOT.name, document="Ш" * 32, first=1, last=2_147_483_646, beginning=False,
            client_id="w" * 64, since=now - timedelta(days=2), until=now, found_at=now,
            closed_at=None, outcome="",
        )  # fmt: skip


def test_no_cell_is_beyond_the_edge(visit: Open) -> None:
    page = visit("/admin/gaps/", login="ops", viewport={"width": 400, "height": 800})
    reach = page.evaluate(REACH)
    assert len(reach) == 5
    assert max(reach) <= 400
    assert fits(page)
    assert "Перед версией сервиса" in page.locator(".gap-list td").nth(2).evaluate(
        "c => getComputedStyle(c, '::before').content"
    )
