"""The page of versions that never arrived: for operators, paged, and without snapshots."""

import re
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from annals.operations.metrics_page import count_gaps
from history.common import clock
from history.kinds.entities import ROOT
from history.models import VersionGap
from tests.db.ingest_rows import create_quarantined_version, record_gap_run
from tests.db.screens import find_link, iterate_pages, read_text

ADDRESS = "/admin/gaps/"


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(User.objects.get(username="ops"))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    return client


@pytest.fixture
def open_and_closed_gaps(db: None) -> None:
    """Create 120 open version gaps of two services, and one closed version gap.

    The message of one open gap is in quarantine.
    """
    now = clock.now()
    record_gap_run(now, quarantined=1)
    for number in range(121):
        VersionGap.objects.create(
            entity=ROOT.name,
            document=f"A{number}",
            first=5,
            last=7 if number else 5,
            beginning=False,
            client_id=f"service-{number % 2}",
            since=now - timedelta(days=2),
            until=now,
            found_at=now,
            closed_at=now if number == 120 else None,
            outcome="arrived" if number == 120 else "",
        )
    create_quarantined_version("A119", 6, value=b"secret")


def list_shown_documents(page: str) -> list[str]:
    return re.findall(r'<(?:a|span) class="ident"[^>]*>(A\d+)<', page)


def test_gap_pages_show_every_gap_once(open_and_closed_gaps: None, operator: Client) -> None:
    assert ADDRESS in operator.get("/admin/").content.decode()
    documents = [
        id for page in iterate_pages(operator, ADDRESS) for id in list_shown_documents(page)
    ]
    assert documents == [f"A{number}" for number in range(119, -1, -1)]


def test_gap_page_explains_quarantined_versions_and_has_no_document_links_for_operator(
    open_and_closed_gaps: None, operator: Client
) -> None:
    answer = operator.get(ADDRESS)
    page_text = read_text(answer)
    assert "Version 6 came on " in page_text
    assert "is in quarantine: updatedAt is wrong." in page_text
    assert "of the missing versions 1 came and are in quarantine" in page_text
    assert b"secret" not in answer.content
    assert b"/admin/history/" not in answer.content
    operator.force_login(User.objects.get(username="admin"))
    assert b"/admin/history/product-instance/A119/" in operator.get(ADDRESS).content


def test_gap_page_can_be_filtered_by_service_and_can_show_closed_gaps(
    open_and_closed_gaps: None, operator: Client
) -> None:
    page = operator.get(ADDRESS, {"clientId": "service-1", "entity": ROOT.name}).content.decode()
    assert {int(document[1:]) % 2 for document in list_shown_documents(page)} == {1}
    assert "clientId=service-1" in find_link(page, "next")
    closed = operator.get(ADDRESS, {"closed": "1"})
    assert list_shown_documents(closed.content.decode()) == ["A120"]
    assert "arrived late" in read_text(closed)


@pytest.mark.parametrize(
    "wrong",
    [{"page": "x"}, {"page": "9" * 30}, {"entity": "car"}, {"clientId": "a\0"}, {"closed": "2"}],
)
def test_gap_page_ignores_wrong_parameters(
    open_and_closed_gaps: None, operator: Client, wrong: dict[str, str]
) -> None:
    assert operator.get(ADDRESS, wrong).status_code == 200


def test_gap_page_says_when_gaps_command_has_never_run(db: None, operator: Client) -> None:
    assert "annals gaps has never run: run it from cron" in read_text(operator.get(ADDRESS))
    assert list(count_gaps()) == []


def test_gap_metrics_count_missing_versions_by_kind_and_service(open_and_closed_gaps: None) -> None:
    families = {gap.name: gap for gap in count_gaps()}
    versions = {
        (sample.labels["entity"], sample.labels["client"]): sample.value
        for sample in families["annals_gaps_versions"].samples
    }
    assert versions == {(ROOT.name, "service-0"): 59 * 3 + 1, (ROOT.name, "service-1"): 60 * 3}


def test_gap_page_says_that_filter_matches_no_gap_when_other_gaps_exist(
    open_and_closed_gaps: None, operator: Client
) -> None:
    for closed in ({}, {"closed": "1"}):
        page_text = read_text(operator.get(ADDRESS, {"clientId": "typo", **closed}))
        assert "No gap fits the filter." in page_text
        assert "No version is missing" not in page_text
    VersionGap.objects.all().delete()
    assert "No version is missing." in read_text(operator.get(ADDRESS))
