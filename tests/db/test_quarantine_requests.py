"""Groups of quarantined messages, and requests to retry or discard them.

An operator makes a request on a page. The cron job `annals quarantine retry` carries it out, with
the database rights of the consumer.
"""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from pytest_django import DjangoDbBlocker

from annals.access.grants import CONSUMER, WEB
from ingest.models import JobRun, QuarantineRequest
from ingest.quarantine.requests import execute_requests
from ingest.quarantine.screen import MOST_GROUPS
from ingest.store.session import open_connection
from tests.db.as_role import act_as, is_refused
from tests.db.ingest_rows import create_quarantined
from tests.db.ingested import Ingested, find_faults, list_ids, list_quarantined
from tests.db.screens import read_text
from tests.db.test_quarantine import quarantine_messages_from_the_future
from tests.messages import WINDOW, make_value

# The requests are committed, because another connection reads them.
commits = pytest.mark.django_db(transaction=True)
ASK = "/admin/quarantine/ask/"


@pytest.fixture
def operator(ingested: Ingested, client: Client) -> Client:
    client.force_login(User.objects.get(username="ops"))
    return client


@pytest.fixture(scope="module", autouse=True)
def web_and_consumer_roles(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    with django_db_blocker.unblock():
        call_command("grants", apply=True)


def make_group_query(**query: Any) -> dict[str, Any]:
    """Return form fields that select a group: messages of one service with a wrong version number.

    They ask to discard the messages, unless `query` has a different `action`.
    """
    [topic] = {message_row["topic"] for message_row in list_quarantined()}
    wrong = {"reason": "bad_field", "client_id": "crm", "field": "version", "topic": topic}
    return {"action": "discard", **wrong, **query}


def make_bad_message(id: str, client: str = "crm") -> bytes:
    return make_value(id=id, version="x", clientId=client)


def list_statuses() -> list[tuple[str, str]]:
    return [(message_row["entity_id"], message_row["status"]) for message_row in list_quarantined()]


def run_retry() -> dict[str, int]:
    with act_as(CONSUMER) as plain:
        return dict(execute_requests(plain, lambda: WINDOW))


def test_quarantine_page_groups_messages_by_reason_service_and_field(
    ingested: Ingested, operator: Client
) -> None:
    ingested.write(
        make_bad_message("a"),
        make_bad_message("b"),
        make_bad_message("c", "web"),
        make_value(id="d", updatedAt="x"),
        b"?",
    )
    groups = operator.get("/admin/quarantine/").context["groups"]
    assert [(g.reason, g.client_id, g.field, g.count) for g in groups] == [
        ("bad_field", "crm", "version", 2),
        ("bad_field", "web", "version", 1),
        ("bad_updated_at", list_quarantined()[3]["client_id"], "updatedAt", 1),
        ("not_json", "", "", 1),
    ]
    assert "x" not in {message_row["detail"] for message_row in list_quarantined()}
    page = operator.get("/admin/quarantine/")
    assert "Messages that are not in the history: 5." in read_text(page)
    assert "Retry…" in read_text(page)
    assert "version is a text; it must be a whole number from 0 to 2147483647" in read_text(page)
    [*links] = re.findall(r'href="([^"]*\?group=[^"]*)"', page.content.decode())
    listed = [operator.get(link).context["cl"].result_count for link in links]
    assert listed == [2, 1, 1, 1]


def test_quarantine_page_counts_messages_of_groups_that_it_does_not_show(operator: Client) -> None:
    for number in range(MOST_GROUPS + 1):
        create_quarantined(offset=number, field=f"field{number}")
    page = operator.get("/admin/quarantine/")
    assert len(page.context["groups"]) == MOST_GROUPS
    assert f"Messages that are not in the history: {MOST_GROUPS + 1}." in read_text(page)


@commits
def test_discarded_group_of_messages_keeps_reason_and_login_of_operator(
    ingested: Ingested, operator: Client
) -> None:
    ingested.write(make_bad_message("a"), make_bad_message("b"), make_bad_message("c", "web"))
    page = operator.get(ASK, make_group_query())
    assert "Messages: 2" in read_text(page)
    hidden = {f.name: f.value() or "" for f in page.context["form"].hidden_fields()}
    # A request without a reason is not recorded.
    assert operator.post(ASK, {**hidden, "why": "  .. "}).status_code == 200
    assert not QuarantineRequest.objects.exists()
    ingested.write(make_bad_message("late"))  # arrived after the page was shown
    assert operator.post(ASK, {**hidden, "why": "told"}).status_code == 302
    assert {status for _, status in list_statuses()} == {"new"}
    assert "waits for the next" in read_text(operator.get("/admin/quarantine/"))
    assert run_retry() == {"discarded": 2}
    assert list_statuses() == [
        ("a", "discarded"),
        ("b", "discarded"),
        ("c", "new"),
        ("late", "new"),
    ]
    assert list_quarantined()[0]["outcome"] == "told (ops)"
    assert run_retry() == {}
    operator.post(ASK, {**hidden, "action": "retry", "last_id": 10**9, "why": "again"})
    assert run_retry() == {"retrying": 1}
    page = read_text(operator.get("/admin/quarantine/"))
    assert "discarded: 2" in page
    assert page.count("still wrong: 1") == 2  # both at the group and in the list
    assert find_faults() == []


def test_group_of_messages_has_no_buttons_while_its_request_waits(
    ingested: Ingested, operator: Client
) -> None:
    ingested.write(make_bad_message("a"), make_bad_message("b", "web"))
    operator.post(ASK, make_group_query(last_id=list_quarantined()[-1]["id"], why="told"))
    page = read_text(operator.get("/admin/quarantine/"))
    assert page.count("discard · told ops") == 1
    assert page.count("Retry…") == 1  # the buttons of the other group
    ingested.write(make_bad_message("late"))
    page = read_text(operator.get("/admin/quarantine/"))
    assert page.count("discard · told ops") == 1
    assert page.count("Retry…") == 2


@commits
def test_messages_that_an_operator_selected_for_retry_are_retried_by_cron_job(
    ingested: Ingested, operator: Client
) -> None:
    quarantine_messages_from_the_future(
        ingested, make_value(id="a"), make_value(id="b"), make_value(id="c")
    )
    with open_connection() as plain:
        plain.execute("UPDATE ingest_quarantine SET next_attempt = now() + interval '1 day'")
    message_ids = [message_row["id"] for message_row in list_quarantined()[:2]]
    action = {"action": "ask_retry", "_selected_action": message_ids}
    to = operator.post("/admin/ingest/quarantined/", action)
    assert to.status_code == 302
    page = operator.get(to.url)
    hidden = {f.name: f.value() or "" for f in page.context["form"].hidden_fields()}
    assert operator.post(ASK, {**hidden, "why": "the clock is right now"}).status_code == 302
    call_command("quarantine", "retry")
    assert list_ids() == ["a", "b"]
    request = QuarantineRequest.objects.get()
    assert (request.outcome, request.login) == ("stored 2", "ops")
    assert JobRun.objects.get().outcome == "stored 2"


def test_login_without_permission_cannot_make_requests(ingested: Ingested, client: Client) -> None:
    ingested.write(make_bad_message("a"))
    for login in ("support", "privacy"):
        client.force_login(User.objects.get(username=login))
        assert client.get(ASK, make_group_query()).status_code == 403
        assert (
            client.post(ASK, {**make_group_query(), "last_id": 9, "why": "told"}).status_code == 403
        )
    assert not QuarantineRequest.objects.exists()


@pytest.mark.parametrize(
    "parameters",
    [
        {"action": "drop"},
        {"ids": "1;2"},
        {"last_id": "x"},
        {"topic": "a\0"},
        {"ids": "1", "client_id": "c" * 65},
        {"last_id": 10**30},
    ],
)
def test_malformed_quarantine_request_is_refused(
    ingested: Ingested, operator: Client, parameters: dict[str, str]
) -> None:
    ingested.write(make_bad_message("a"))
    assert operator.get(ASK, make_group_query(**parameters)).status_code == 400


def test_web_may_only_add_quarantine_requests_and_consumer_may_only_settle_them(
    ingested: Ingested,
) -> None:
    insert = (
        "INSERT INTO ingest_quarantine_request (action, reason, client_id, field, topic, ids,"
        " last_id, why, login, asked_at, outcome)"
        " VALUES ('retry', '', '', '', '', '{1}', 1, 'told', 'ops', now(), '')"
    )
    with act_as(CONSUMER) as plain:
        assert is_refused(plain, insert)
        assert is_refused(plain, "UPDATE ingest_quarantine_request SET why = 'x'")
    with act_as(WEB) as plain:
        assert not is_refused(plain, insert)
        assert is_refused(plain, "UPDATE ingest_quarantine_request SET outcome = 'x'")
