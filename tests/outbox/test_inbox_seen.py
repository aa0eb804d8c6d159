"""How operators see the inbox: the status command, metrics, checks, and pages of the admin."""

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
from outbox.inbox.apps import CHECK_TAG
from outbox.inbox.models import Waiting
from tests.outbox import settings
from tests.outbox.admin_browsers import make_admin_browser, make_viewer_browser, run_action
from tests.outbox.consumers import list_effects, make_message, process_due, store_messages
from tests.required_programs import promtool

PAGE = "/admin/inbox/waiting/"


@pytest.fixture
def waiting_messages(service: str) -> None:
    """Key A has a dead letter and a message behind it, B a failed message, C a processed one."""
    headers = (("x", b"\xff<b>"), ("none", None))
    store_messages(
        inbox.Message("shop.events", 0, 1, b"A", b"\xd0\xb6 <script>", headers),
        make_message(2, do="raise", key="B"),
        make_message(3, "C"),
        make_message(4),
    )
    status.add_counts(process_due(RETRY_FIRST_SECONDS=60, RETRY_MOST_SECONDS=60).counts, "default")
    store_messages(make_message(3, "C"))


def test_status_command_counts_messages_by_state(waiting_messages: None) -> None:
    output = StringIO()
    call_command("inbox", "status", json=True, stdout=output)
    figures = json.loads(output.getvalue())["shop"]
    assert figures.pop("oldest_seconds") > 0
    assert figures == {
        "states": {"new": 1, "processing": 0, "failed": 1, "dead": 1},
        "stored": 0,
        "repeated": 0,
        "attempts": 3,
        "done": 1,
        "dead": 1,
        "failures": {"HandlerError": 1},
    }


def test_metrics_of_the_inbox_are_on_the_metrics_page_of_the_outbox(waiting_messages: None) -> None:
    text = Client().get("/outbox/metrics").content.decode()
    assert "outbox_pending_documents 0\n" in text
    assert 'inbox_messages{handler="shop",state="dead"} 1\n' in text
    assert 'inbox_processed_total{handler="shop"} 1\n' in text
    assert 'inbox_failures_total{handler="shop",reason="HandlerError"} 1\n' in text
    subprocess.run([promtool(), "check", "metrics"], input=text, text=True, check=True)


def test_inbox_admin_lists_waiting_messages_and_escapes_their_html(waiting_messages: None) -> None:
    text = make_admin_browser().get(PAGE).content.decode()
    for word in ("shop.events/0/1", "shop.events/0/2", "HandlerError: as asked", "Dead letter"):
        assert word in text
    assert "shop.events/0/3" not in text
    assert text.index("column-last_error") < text.index("column-handler")
    dead = Waiting.objects.get(state="dead")
    page = make_admin_browser().get(f"{PAGE}{dead.id}/change/").content.decode()
    assert "ж &lt;script&gt;" in page
    assert "\\xff&lt;b&gt;" in page
    assert 'name="_save"' not in page
    assert make_admin_browser().post(f"{PAGE}{dead.id}/change/").status_code == 403


def test_messages_behind_a_dead_letter_are_processed_after_discard_in_admin(
    waiting_messages: None,
) -> None:
    dead = Waiting.objects.get(state="dead")
    run_action(PAGE, "discard", list_waiting_ids())
    [entry] = LogEntry.objects.filter(object_id=str(dead.id))
    assert entry.change_message.startswith("Discarded: Reject: the value is not JSON")
    assert Waiting.objects.filter(id=dead.id).count() == 0
    process_due()
    assert ("A", 4) in list_effects()


def test_dead_letter_retried_in_admin_is_processed(waiting_messages: None) -> None:
    dead = Waiting.objects.get(state="dead")
    Waiting.objects.filter(id=dead.id).update(value=make_message(1).value)
    run_action(PAGE, "retry", list_waiting_ids())
    process_due()
    assert [n for key, n in list_effects() if key == "A"] == [1, 4]


def test_inbox_admin_refuses_actions_of_a_login_that_may_only_view(waiting_messages: None) -> None:
    client = make_viewer_browser("view_waiting")
    assert client.get(PAGE).status_code == 200
    dead = Waiting.objects.get(state="dead")
    client.post(PAGE, {"action": "discard", "_selected_action": [dead.id]})
    assert Waiting.objects.filter(id=dead.id).exists()


def test_consumer_without_a_handler_does_not_start(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox.inbox.loop.list_handlers", dict)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(CommandError, match="there is no handler"):
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
def test_check_of_inbox_settings_names_a_wrong_value(
    service: str, changes: dict[str, Any], sentence: str
) -> None:
    setting = {**settings.INBOX, **changes}
    setting = {name: value for name, value in setting.items() if value is not ...}
    with override_settings(INBOX=setting):
        [(identity, text)] = list_problems()
    assert identity == "inbox.E001"
    assert sentence in text


def list_problems() -> list[tuple[str | None, str]]:
    return [(problem.id, problem.msg) for problem in run_checks(tags=[CHECK_TAG])]


def list_waiting_ids() -> list[str]:
    return [str(message.id) for message in Waiting.objects.all()]
