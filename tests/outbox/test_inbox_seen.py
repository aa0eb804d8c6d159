"""What operators see of the inbox: the command, metrics, checks, and the pages of the admin."""

from __future__ import annotations

import json
import subprocess
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client, override_settings

from outbox import inbox
from outbox.inbox import status
from outbox.inbox.checks import TAG
from outbox.inbox.models import Waiting
from tests.need import promtool
from tests.outbox import settings
from tests.outbox.consumers import effects, message, put, work
from tests.outbox.staff import act, admin, read_from_a_replica, viewer

PAGE = "/admin/inbox/waiting/"


@pytest.fixture
def letters(service: str) -> None:
    """A: a dead letter, and a message behind it. B: failed. C: processed."""
    headers = (("x", b"\xff<b>"), ("none", None))
    put(
        inbox.Message("shop.events", 0, 1, b"A", b"\xd0\xb6 <script>", headers),
        message(2, do="raise", key="B"),
        message(3, "C"),
        message(4),
    )
    status.add(work(RETRY_FIRST_SECONDS=60, RETRY_MOST_SECONDS=60).counts, "default")
    put(message(3, "C"))


def test_the_status(letters: None) -> None:
    found = status.read("default")["shop"]
    assert found.states == {"new": 1, "processing": 0, "failed": 1, "dead": 1}
    assert found.counts == {"attempts": 3, "done": 1, "dead": 1}
    assert found.failures == {"Failure": 1}
    assert found.oldest_seconds > 0
    output = StringIO()
    call_command("inbox", "status", stdout=output)
    assert "shop: 3 messages wait" in output.getvalue()
    assert "1 failed, 1 is a dead letter; 1 was processed.\nshop: 1 failure: Failure\n" in (
        output.getvalue()
    )
    output = StringIO()
    call_command("inbox", "status", json=True, stdout=output)
    assert json.loads(output.getvalue())["shop"]["states"]["dead"] == 1


def test_metrics_are_on_the_page_of_the_outbox(letters: None) -> None:
    text = Client().get("/outbox/metrics").content.decode()
    assert "outbox_pending_documents 0\n" in text
    assert 'inbox_messages{handler="shop",state="dead"} 1\n' in text
    assert 'inbox_processed_total{handler="shop"} 1\n' in text
    assert 'inbox_failures_total{handler="shop",reason="Failure"} 1\n' in text
    subprocess.run([promtool(), "check", "metrics"], input=text, text=True, check=True)


def test_the_list_and_a_letter(letters: None) -> None:
    text = admin().get(PAGE).content.decode()
    for word in ("shop.events/0/1", "shop.events/0/2", "Failure: as asked", "Dead letter"):
        assert word in text
    assert "shop.events/0/3" not in text
    assert text.index("column-last_error") < text.index("column-handler")
    dead = Waiting.objects.get(state="dead")
    page = admin().get(f"{PAGE}{dead.id}/change/").content.decode()
    assert "ж &lt;script&gt;" in page
    assert "\\xff&lt;b&gt;" in page
    assert 'name="_save"' not in page
    assert admin().post(f"{PAGE}{dead.id}/change/").status_code == 403


def test_a_letter_is_discarded_and_its_key_goes_on(letters: None) -> None:
    dead = Waiting.objects.get(state="dead")
    act(PAGE, "discard", all_waiting())
    [entry] = LogEntry.objects.filter(object_id=str(dead.id))
    assert entry.change_message.startswith("Discarded: Reject: no JSON")
    assert Waiting.objects.filter(id=dead.id).count() == 0
    work()
    assert ("A", 4) in effects()


def test_a_letter_is_tried_again(letters: None) -> None:
    dead = Waiting.objects.get(state="dead")
    Waiting.objects.filter(id=dead.id).update(value=message(1).value)
    act(PAGE, "retry", all_waiting())
    work()
    assert [n for key, n in effects() if key == "A"] == [1, 4]


@pytest.mark.parametrize("action, there", [("retry", True), ("discard", False)])
def test_what_is_read_from_a_replica_is_changed_on_the_primary(
    letters: None, action: str, there: bool
) -> None:
    dead = Waiting.objects.get(state="dead")
    with read_from_a_replica():
        act(PAGE, action, [str(dead.id)])
    assert Waiting.objects.filter(id=dead.id).exists() is there
    assert not Waiting.objects.filter(state="dead").exists()


@pytest.mark.parametrize("given", ["?state=x%00", "?handler=x%00", "?state__in=dead,x%00"])
def test_nul_in_the_address_of_the_list_is_refused(service: str, given: str) -> None:
    assert admin().get(f"{PAGE}{given}").status_code == 400


@pytest.mark.parametrize(
    "given",
    ["state__regex=(", "handler__in=x", "id__range=1", "received_at__year=99999", "value=x",
     "sent_at=9999-12-31T23:59:59-23:59", "due_at__gt=99999-01-01"],
)  # fmt: skip
def test_a_lookup_that_no_filter_of_the_list_makes_is_refused_by_name(
    letters: None, given: str
) -> None:
    answer = admin().get(f"{PAGE}?{given}")
    assert answer.status_code == 400
    assert given.partition("=")[0] in answer.content.decode()


def test_the_filters_of_the_list_work(letters: None) -> None:
    for given, count in {"state__exact=dead": 1, "handler=shop": 3, "handler__isnull=0": 3}.items():
        answer: Any = admin().get(f"{PAGE}?{given}")
        assert answer.context["cl"].result_count == count, given


@pytest.mark.parametrize("key", ["x", "", "1e9", "9" * 5000])
def test_a_chosen_row_that_no_row_is_is_refused(letters: None, key: str) -> None:
    given = {"action": "discard", "_selected_action": [key]}
    assert admin().post(PAGE, given).status_code == 400


def test_who_may_only_look_can_do_nothing(letters: None) -> None:
    client = viewer("view_waiting")
    assert client.get(PAGE).status_code == 200
    dead = Waiting.objects.get(state="dead")
    client.post(PAGE, {"action": "discard", "_selected_action": [dead.id]})
    assert Waiting.objects.filter(id=dead.id).exists()


def test_checks_of_what_waits(letters: None) -> None:
    assert found() == []
    both = found(databases=["default"])
    assert both == [("inbox.W003", "The handler 'shop' has 1 dead letter.")]
    Waiting.objects.update(handler="gone")
    assert ("inbox.W002", "3 messages wait for the handler 'gone', which does not exist.") in found(
        databases=["default"]
    )


def test_no_handler(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox.inbox.message._handlers", {})
    assert found() == [("inbox.W001", "The inbox has no handler.")]
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(CommandError, match="no handler for any topic"):
        call_command("inbox", "consume")


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"GROUP": ...}, "missing: GROUP"),
        ({"GROUP": ""}, "GROUP must be a text"),
        ({"GROUPS": "x"}, "unknown: GROUPS; known are GROUP, KAFKA"),
        ({"KAFKA": "localhost"}, "KAFKA must map"),
        ({"KAFKA": {"enable.auto.commit": True}}, "enable.auto.commit must be false"),
        ({"KAFKA": {"group.id": "x"}}, "the group is the key GROUP"),
        ({"KEEP_DAYS": 29}, "KEEP_DAYS must be a whole number from 1 to 28"),
        ({"ATTEMPTS": 0}, "ATTEMPTS must be a whole number, 1 or more"),
        ({"SECONDS": 0}, "SECONDS must be 0.1 or more"),
        ({"RETRY_FIRST_SECONDS": 0}, "RETRY_FIRST_SECONDS must be 0.01 or more"),
        ({"RETRY_FIRST_SECONDS": 10, "RETRY_MOST_SECONDS": 9}, "RETRY_MOST_SECONDS must be"),
    ],
)
def test_a_wrong_setting_is_named(service: str, changes: dict[str, Any], sentence: str) -> None:
    given = {**settings.INBOX, **changes}
    given = {name: value for name, value in given.items() if value is not ...}
    with override_settings(INBOX=given):
        [(identity, text)] = found()
    assert identity == "inbox.E001"
    assert sentence in text


def test_another_database_than_postgresql(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")
    assert found() == [
        ("inbox.E002", "The inbox needs PostgreSQL; the database 'default' is sqlite.")
    ]


def found(databases: list[str] | None = None) -> list[tuple[str | None, str]]:
    return [(each.id, each.msg) for each in run_checks(tags=[TAG], databases=databases)]


def all_waiting() -> list[str]:
    return [str(each.id) for each in Waiting.objects.all()]
