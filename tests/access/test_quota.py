"""A login opens so many different applications an hour, and no more, however it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import ProgrammingError, connection
from django.test import Client
from prometheus_client import REGISTRY

from annals import env
from annals.access import quota
from annals.access.grants import WEB
from annals.access.journal.days import create
from annals.access.models import JournalEntry, Opened
from annals.access.roles import quotas
from history.entities import ROOT
from history.models import SearchKey
from tests.access.issuer import Issuer
from tests.access.test_bearer_api import ask, issuer
from tests.db.partitioned import transactional_db
from tests.db.store import T0, Store

__all__ = ["issuer", "transactional_db"]

API = "/api/v1/history/product-instance"
LIMIT = 3


@pytest.fixture
def limited(settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(
        settings.ANNALS, quota_people=LIMIT, quota_programs=LIMIT + 1
    )


@pytest.fixture
def many(store: Store, limited: None) -> Store:
    for number in range(8):
        store.add(f"A{number}", 0, {"number": "N" if number > 4 else "M"}, number)
    store.add("P1", 0, {}, 0, entity="participant-role", application="A1")
    return store


def login(name: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username=name))
    return client


def test_the_next_application_is_refused_and_the_opened_ones_stay_open(many: Store) -> None:
    before = REGISTRY.get_sample_value("annals_quota_refusals_total", {"who": "person"}) or 0
    support = login("support")
    for address in (f"{API}/A0", "/api/v1/history/participant-role/P1", "/admin/applications/A2/"):
        assert support.get(address).status_code == 200
    refused = support.get(f"{API}/A3")
    assert refused.status_code == 429
    assert json.loads(refused.content)["error"]["code"] == "too_many_applications"
    assert 3500 < int(refused.headers["Retry-After"]) <= 3600
    assert support.head(f"{API}/A3").status_code == 429
    assert support.get("/api/v1/applications/A3/at?time=2099-01-01").status_code == 429
    page = support.get("/admin/applications/A3/")
    assert (page.status_code, "Retry-After" in page.headers) == (429, True)
    assert f"открыть не больше {LIMIT} разных заявок" in page.content.decode()
    for address in (f"{API}/A0", f"{API}/A1", "/admin/history/participant-role/P1/"):
        assert support.get(address).status_code == 200
    assert login("auditor").get(f"{API}/A3").status_code == 200
    after = REGISTRY.get_sample_value("annals_quota_refusals_total", {"who": "person"})
    assert after == before + 4
    row = JournalEntry.objects.filter(application="A3", login="support").first()
    assert row is not None
    assert (row.outcome, row.status, row.reason) == ("refused", 429, "quota")


@pytest.mark.parametrize(
    "address",
    [
        f"{API}/A3?author=nobody",
        f"{API}/A3?to=2001-01-01",
        f"{API}/A3?from=2099-01-01",
        f"{API}/A3/versions/99999",
        f"{API}/A3/versions/0",
        f"{API}/A3/at?time=2001-01-01",
        f"{API}/A3/compare?from=7&to=8",
        f"{API}/A3/fields?path=/nowhere",
        "/api/v1/applications/A3/history?author=nobody",
        "/api/v1/applications/A3/at?time=2001-01-01",
        "/admin/history/product-instance/A3/?author=nobody",
        "/admin/applications/A3/?author=nobody",
        "/admin/at/A3/?time=2001-01-01T00:00",
    ],
)
def test_that_nothing_fits_is_an_answer_too(many: Store, address: str) -> None:
    """It says who changed an application, and when: ask often enough, and you know."""
    support = login("support")
    for number in range(LIMIT):
        assert support.get(f"{API}/A{number}").status_code == 200
    assert support.get(address).status_code == 429
    assert support.get(address.replace("A3", "A9")).status_code in (400, 404)
    assert login("auditor").get(address).status_code in (200, 404)
    assert Opened.objects.filter(application="A3").count() == 1


def test_lists_count_too_all_of_a_page_or_nothing(many: Store) -> None:
    for number in range(8):
        SearchKey.objects.create(
            value="N" if number > 4 else "M",
            name="number",
            entity=ROOT.name,
            id=f"A{number}",
            day=T0.date(),
        )
    support = login("support")
    assert support.get("/api/v1/search?q=M").status_code == 429
    assert not Opened.objects.exists()
    assert support.get("/admin/history/?q=N").status_code == 200
    assert support.get(f"{API}/A0").status_code == 429
    assert support.get("/admin/history/?q=A0,A1").status_code == 429
    assert support.get(f"{API}/A7").status_code == 200


def test_an_hour_later_there_is_room(many: Store) -> None:
    support = login("support")
    for number in range(LIMIT):
        support.get(f"{API}/A{number}")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE access_opened SET at = at - interval '61 minutes'")
    for number in range(3, 3 + LIMIT):
        assert support.get(f"{API}/A{number}").status_code == 200
    assert support.get(f"{API}/A0").status_code == 429


def test_a_program_has_a_limit_of_its_own(client: Client, issuer: Issuer, many: Store) -> None:
    token = issuer.token()
    found = [ask(client, token, f"{API}/A{number}").status_code for number in range(6)]
    assert found == [200] * (LIMIT + 1) + [429, 429]


def test_what_is_refused_for_another_reason_does_not_count(many: Store) -> None:
    support = login("support")
    assert support.get(f"{API}/NONE").status_code == 404
    assert Client().get(f"{API}/A0").status_code == 401
    assert not Opened.objects.exists()


@pytest.mark.parametrize(
    "demo, given, limit", [(True, None, 0), (False, None, 200), (True, 7, 7), (False, 0, 0)]
)
def test_the_limit_of_people(
    demo: bool, given: int | None, limit: int, settings: Any, db: None
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, demo=demo, quota_people=given)
    assert quota.limit_of(User.objects.get(username="support")) == limit


def test_roles_have_limits_of_their_own(settings: Any, db: None) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, quota_people=7)
    settings.QUOTAS = quotas(env.Settings(quota_roles=("auditor=1000", "privacy = 0", "ops=5")))
    names = ("support", "auditor", "privacy", "ops")
    found = [quota.limit_of(User.objects.get(username=name)) for name in names]
    assert found == [7, 1000, 0, 5]
    both = User.objects.get(username="auditor")
    both.groups.add(Group.objects.get(name="ops"))
    assert quota.limit_of(both) == 1000


@pytest.mark.parametrize("text", ["auditor", "auditor=", "nobody=5", "auditor=-1", "auditor=many"])
def test_a_wrong_limit_of_a_role_is_named(text: str) -> None:
    with pytest.raises(env.SettingError, match=f"^ANNALS_QUOTA_ROLES is wrong: '{text}'"):
        quotas(env.Settings(quota_roles=(text,)))


@pytest.fixture
def committed(transactional_db: None, limited: None) -> Iterator[Store]:
    create()
    store = Store()
    for number in range(16):
        store.add(f"A{number}", 0, {}, number)
    yield store
    for table in ("access_opened", "access_journal", "django_session"):
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {table}")


def test_sixteen_at_once_do_not_pass_the_limit(committed: Store) -> None:
    cookies = login("support").cookies

    def ask_for(number: int) -> int:
        client = Client()
        client.cookies = cookies
        try:
            return int(client.get(f"{API}/A{number}").status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        found = sorted(pool.map(ask_for, range(16)))
    assert found == [200] * LIMIT + [429] * (16 - LIMIT)
    assert Opened.objects.count() == LIMIT


def test_the_web_counts_with_its_own_rights_and_cannot_forget(committed: Store) -> None:
    call_command("grants", apply=True)
    support = login("support")
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {WEB}")
        try:
            found = [support.get(f"{API}/A{number}").status_code for number in range(LIMIT + 1)]
            assert found == [200] * LIMIT + [429]
            for statement in (
                "DELETE FROM access_opened",
                "UPDATE access_opened SET at = 'epoch'",
                "INSERT INTO access_opened (caller, application, at) VALUES ('', '', 'epoch')",
            ):
                with pytest.raises(ProgrammingError, match="permission denied"):
                    cursor.execute(statement)
        finally:
            cursor.execute("RESET ROLE")


@pytest.mark.parametrize("failure, status", [("refuse", 503), ("answer", 200)])
def test_what_cannot_be_counted_is_not_opened(
    failure: str, status: int, committed: Store, settings: Any
) -> None:
    support = login("support")
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, journal_failure=failure)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE access_opened RENAME TO gone")
    try:
        assert support.get(f"{API}/A0").status_code == status
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE gone RENAME TO access_opened")
