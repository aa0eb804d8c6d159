"""The quarantine in groups, and what somebody asks for there: recorded by the web, done with the
consumer's login."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from pytest_django import DjangoDbBlocker

from annals.access.grants import CONSUMER, WEB
from ingest.models import JobRun, QuarantineRequest
from ingest.quarantine.requests import carry_out
from ingest.store.session import open_connection
from tests.db.as_role import acting_as, refused
from tests.db.ingested import Ingested, faults, ids, quarantined
from tests.db.screens import text
from tests.db.test_quarantine import store_too_early
from tests.messages import WINDOW, value

# What the screens record is read on another connection.
commits = pytest.mark.django_db(transaction=True)
ASK = "/admin/quarantine/ask/"


@pytest.fixture
def ops(ingested: Ingested, client: Client) -> Client:
    client.force_login(User.objects.get(username="ops"))
    return client


@pytest.fixture(scope="module", autouse=True)
def roles(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock():
        call_command("grants", apply=True)


def group(**given: Any) -> dict[str, Any]:
    """The query of a group: a wrong version of one service."""
    [topic] = {held["topic"] for held in quarantined()}
    wrong = {"reason": "bad_field", "client_id": "crm", "field": "version", "topic": topic}
    return {"action": "discard", **wrong, **given}


def wrong(id: str, client: str = "crm") -> bytes:
    return value(id=id, version="x", clientId=client)


def statuses() -> list[tuple[str, str]]:
    return [(held["entity_id"], held["status"]) for held in quarantined()]


def do() -> dict[str, int]:
    with acting_as(CONSUMER) as plain:
        return dict(carry_out(plain, lambda: WINDOW))


def test_groups_are_by_reason_service_and_field(ingested: Ingested, ops: Client) -> None:
    ingested.write(wrong("a"), wrong("b"), wrong("c", "web"), value(id="d", updatedAt="x"), b"?")
    groups = ops.get("/admin/quarantine/").context["groups"]
    assert [(g.reason, g.client_id, g.field, g.count) for g in groups] == [
        ("bad_field", "crm", "version", 2),
        ("bad_field", "web", "version", 1),
        ("bad_updated_at", quarantined()[3]["client_id"], "updatedAt", 1),
        ("not_json", "", "", 1),
    ]
    assert "x" not in {held["detail"] for held in quarantined()}
    page = ops.get("/admin/quarantine/")
    assert "Сообщений, которых нет в истории: 5." in text(page)
    assert "Повторить…" in text(page)
    assert "version : текст; нужно: целое число от 0 до 2147483647" in text(page)
    [*links] = re.findall(r'href="([^"]*\?group=[^"]*)"', page.content.decode())
    listed = [ops.get(link).context["cl"].result_count for link in links]
    assert listed == [2, 1, 1, 1]


@commits
def test_a_group_is_discarded_with_the_reason_and_the_login(
    ingested: Ingested, ops: Client
) -> None:
    ingested.write(wrong("a"), wrong("b"), wrong("c", "web"))
    page = ops.get(ASK, group())
    assert "Сообщений: 2" in text(page)
    hidden = {f.name: f.value() or "" for f in page.context["form"].hidden_fields()}
    assert ops.post(ASK, {**hidden, "why": "  .. "}).status_code == 200  # no reason: not recorded
    assert not QuarantineRequest.objects.exists()
    ingested.write(wrong("late"))  # nobody saw it
    assert ops.post(ASK, {**hidden, "why": "told"}).status_code == 302
    assert {status for _, status in statuses()} == {"new"}
    assert "ждёт ближайшего запуска" in text(ops.get("/admin/quarantine/"))
    assert do() == {"discarded": 2}
    assert statuses() == [("a", "discarded"), ("b", "discarded"), ("c", "new"), ("late", "new")]
    assert quarantined()[0]["outcome"] == "told (ops)"
    assert do() == {}
    ops.post(ASK, {**hidden, "action": "retry", "last_id": 10**9, "why": "again"})
    assert do() == {"retrying": 1}
    page = text(ops.get("/admin/quarantine/"))
    assert "отброшено: 2" in page
    assert page.count("повторено, ошибка осталась: 1") == 2  # at the group, and in the list
    assert faults() == []


def test_a_group_of_which_all_is_asked_for_has_no_buttons(ingested: Ingested, ops: Client) -> None:
    ingested.write(wrong("a"), wrong("b", "web"))
    ops.post(ASK, group(last_id=quarantined()[-1]["id"], why="told"))
    page = text(ops.get("/admin/quarantine/"))
    assert page.count("отбросить · told ops") == 1
    assert page.count("Повторить…") == 1  # of the other group
    ingested.write(wrong("late"))
    page = text(ops.get("/admin/quarantine/"))
    assert page.count("отбросить · told ops") == 1
    assert page.count("Повторить…") == 2


@commits
def test_chosen_messages_are_retried_by_the_command_of_cron(
    ingested: Ingested, ops: Client
) -> None:
    store_too_early(ingested, value(id="a"), value(id="b"), value(id="c"))
    with open_connection() as plain:
        plain.execute("UPDATE ingest_quarantine SET next_attempt = now() + interval '1 day'")
    chosen = [held["id"] for held in quarantined()[:2]]
    action = {"action": "ask_retry", "_selected_action": chosen}
    to = ops.post("/admin/ingest/quarantined/", action)
    assert to.status_code == 302
    page = ops.get(to.url)
    hidden = {f.name: f.value() or "" for f in page.context["form"].hidden_fields()}
    assert ops.post(ASK, {**hidden, "why": "the clock is right now"}).status_code == 302
    call_command("quarantine", "retry")
    assert ids() == ["a", "b"]
    request = QuarantineRequest.objects.get()
    assert (request.outcome, request.login) == ("stored 2", "ops")
    assert JobRun.objects.get().outcome == "stored 2"


def test_who_may_only_look_asks_for_nothing(ingested: Ingested, client: Client) -> None:
    ingested.write(wrong("a"))
    for login in ("support", "privacy"):
        client.force_login(User.objects.get(username=login))
        assert client.get(ASK, group()).status_code == 403
        assert client.post(ASK, {**group(), "last_id": 9, "why": "told"}).status_code == 403
    assert not QuarantineRequest.objects.exists()


@pytest.mark.parametrize(
    "given",
    [
        {"action": "drop"},
        {"ids": "1;2"},
        {"last_id": "x"},
        {"topic": "a\0"},
        {"ids": "1", "client_id": "c" * 65},
        {"last_id": 10**30},
    ],
)
def test_a_wrong_request_is_refused(ingested: Ingested, ops: Client, given: dict[str, str]) -> None:
    ingested.write(wrong("a"))
    assert ops.get(ASK, group(**given)).status_code == 400


def test_the_rights_of_the_logins(ingested: Ingested) -> None:
    insert = (
        "INSERT INTO ingest_quarantine_request (action, reason, client_id, field, topic, ids,"
        " last_id, why, login, asked_at, outcome)"
        " VALUES ('retry', '', '', '', '', '{1}', 1, 'told', 'ops', now(), '')"
    )
    with acting_as(CONSUMER) as plain:
        assert refused(plain, insert)
        assert refused(plain, "UPDATE ingest_quarantine_request SET why = 'x'")
    with acting_as(WEB) as plain:
        assert not refused(plain, insert)
        assert refused(plain, "UPDATE ingest_quarantine_request SET outcome = 'x'")
