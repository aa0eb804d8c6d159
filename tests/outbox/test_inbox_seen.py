"""What operators see of the inbox: the command, metrics, checks, and the pages of the admin."""

import json
import subprocess
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.test import Client, override_settings

from outbox import inbox
from outbox.inbox import status
from outbox.inbox.apps import TAG
from outbox.inbox.models import Waiting
from tests.need import promtool
from tests.outbox import settings
from tests.outbox.consumers import effects, message, put, work
from tests.outbox.staff import act, admin, viewer

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
    output = StringIO()
    call_command("inbox", "status", json=True, stdout=output)
    found = json.loads(output.getvalue())["shop"]
    assert found.pop("oldest_seconds") > 0
    assert found == {
        "states": {"new": 1, "processing": 0, "failed": 1, "dead": 1},
        "stored": 0,
        "repeated": 0,
        "attempts": 3,
        "done": 1,
        "dead": 1,
        "failures": {"Failure": 1},
    }


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


def test_who_may_only_look_can_do_nothing(letters: None) -> None:
    client = viewer("view_waiting")
    assert client.get(PAGE).status_code == 200
    dead = Waiting.objects.get(state="dead")
    client.post(PAGE, {"action": "discard", "_selected_action": [dead.id]})
    assert Waiting.objects.filter(id=dead.id).exists()


def test_no_handler(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outbox.inbox.message._handlers", {})
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(CommandError, match="no handler for any topic"):
        call_command("inbox", "consume")


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"GROUP": ...}, "missing: GROUP"),
        ({"GROUP": ""}, "GROUP must be a text"),
        ({"GROUPS": "x"}, "unknown: GROUPS; known are "),
        ({"ATTEMPTS": 0}, "ATTEMPTS must be 1 or more"),
        ({"SECONDS": 0}, "SECONDS must be 0.1 or more"),
    ],
)
def test_a_wrong_setting_is_named(service: str, changes: dict[str, Any], sentence: str) -> None:
    given = {**settings.INBOX, **changes}
    given = {name: value for name, value in given.items() if value is not ...}
    with override_settings(INBOX=given):
        [(identity, text)] = found()
    assert identity == "inbox.E001"
    assert sentence in text


def found() -> list[tuple[str | None, str]]:
    return [(each.id, each.msg) for each in run_checks(tags=[TAG])]


def all_waiting() -> list[str]:
    return [str(each.id) for each in Waiting.objects.all()]
