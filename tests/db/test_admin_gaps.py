"""The page of the versions that never arrived: for operators, in pages, without contents."""

import re
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from annals.observe.metrics import gaps
from history.base import clock
from history.entities import ROOT
from history.gap_models import VersionGap
from tests.db.noted import gaps_ran, held_version
from tests.db.screens import link, text, walk

ADDRESS = "/admin/gaps/"


@pytest.fixture
def ops(client: Client) -> Client:
    client.force_login(User.objects.get(username="ops"))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    return client


@pytest.fixture
def found(db: None) -> None:
    """120 open gaps of two services, one of them explained, and a closed one."""
    now = clock.now()
    gaps_ran(now, quarantined=1)
    for number in range(121):
        VersionGap.objects.create(
            entity=ROOT.name, document=f"A{number}", first=5, last=7 if number else 5,
            beginning=False, client_id=f"service-{number % 2}", since=now - timedelta(days=2),
            until=now, found_at=now, closed_at=now if number == 120 else None,
            outcome="arrived" if number == 120 else "",
        )  # fmt: skip
    held_version("A119", 6, value=b"secret")


def documents(page: str) -> list[str]:
    return re.findall(r'<(?:a|span) class="ident"[^>]*>(A\d+)<', page)


def test_every_gap_is_on_one_page(found: None, ops: Client) -> None:
    assert ADDRESS in ops.get("/admin/").content.decode()
    shown = [id for page in walk(ops, ADDRESS) for id in documents(page)]
    assert shown == [f"A{number}" for number in range(119, -1, -1)]


def test_it_says_what_came_and_leads_no_operator_to_documents(found: None, ops: Client) -> None:
    answer = ops.get(ADDRESS)
    said = text(answer)
    assert "Version 6 came on " in said
    assert "is in quarantine: updatedAt is wrong." in said
    assert "of the missing versions 1 came and are in quarantine" in said
    assert b"secret" not in answer.content
    assert b"/admin/history/" not in answer.content
    ops.force_login(User.objects.get(username="admin"))
    assert b"/admin/history/product-instance/A119/" in ops.get(ADDRESS).content


def test_a_filter_and_the_closed_ones(found: None, ops: Client) -> None:
    page = ops.get(ADDRESS, {"clientId": "service-1", "entity": ROOT.name}).content.decode()
    assert {int(each[1:]) % 2 for each in documents(page)} == {1}
    assert "clientId=service-1" in link(page, "next")
    closed = ops.get(ADDRESS, {"closed": "1"})
    assert documents(closed.content.decode()) == ["A120"]
    assert "arrived late" in text(closed)


@pytest.mark.parametrize(
    "wrong",
    [{"page": "x"}, {"page": "9" * 30}, {"entity": "car"}, {"clientId": "a\0"}, {"closed": "2"}],
)
def test_a_wrong_parameter_is_not_used(found: None, ops: Client, wrong: dict[str, str]) -> None:
    assert ops.get(ADDRESS, wrong).status_code == 200


def test_before_the_first_run(db: None, ops: Client) -> None:
    assert "annals gaps has never run: run it from cron" in text(ops.get(ADDRESS))
    assert list(gaps()) == []


def test_the_metrics(found: None) -> None:
    families = {each.name: each for each in gaps()}
    versions = {
        (each.labels["entity"], each.labels["client"]): each.value
        for each in families["annals_gaps_versions"].samples
    }
    assert versions == {(ROOT.name, "service-0"): 59 * 3 + 1, (ROOT.name, "service-1"): 60 * 3}


def test_a_filter_that_finds_nothing_does_not_say_that_nothing_is_missing(
    found: None, ops: Client
) -> None:
    for closed in ({}, {"closed": "1"}):
        said = text(ops.get(ADDRESS, {"clientId": "typo", **closed}))
        assert "No gap fits the filter." in said
        assert "No version is missing" not in said
    VersionGap.objects.all().delete()
    assert "No version is missing." in text(ops.get(ADDRESS))
