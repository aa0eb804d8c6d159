"""How operators see the outbox: the status command, metrics, and pages of the admin."""

import json
import subprocess
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client, override_settings

import outbox
from outbox.models import Document
from outbox.operations import status
from tests.outbox import settings
from tests.outbox.admin_browsers import make_admin_browser, make_viewer_browser, run_action
from tests.required_programs import promtool

KIND = "product-instance"
PAGE = "/admin/outbox/document/"
CHOSEN_DOCUMENTS = [f"{KIND}/A1", f"{KIND}/A2"]


@pytest.fixture
def documents(service: str) -> None:
    """Document A1 has two unsent versions, A2 has failed, A3 is being sent, and A4 is sent."""
    for id in ("A1", "A1", "A2", "A2", "A3", "A4"):
        with transaction.atomic():
            outbox.record(KIND, id, {"n": Document.objects.count()}, author="m.prygunov")
    with transaction.atomic():
        outbox.record(KIND, "A1", {"n": "new"})
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE outbox_document SET attempts = 3, last_error = 'MSG_SIZE_TOO_LARGE: too large',"
            " next_attempt_at = clock_timestamp() + interval '1 hour' WHERE key LIKE '%%/A2'"
        )
        cursor.execute(
            "UPDATE outbox_document SET sent = 1, waiting_since = NULL WHERE key LIKE '%%/A4'"
        )
        cursor.execute(
            "UPDATE outbox_document SET waiting_since = waiting_since - interval '90 s'"
            " WHERE key LIKE '%%/A1'"
        )
        cursor.execute(
            "INSERT INTO outbox_relay (name, in_hand) VALUES ('host:7', %s) RETURNING id",
            [json.dumps([f"{KIND}/A3"])],
        )
        [relay] = cursor.fetchone()
        cursor.execute("UPDATE outbox_bucket SET owner = %s WHERE number < 2", [relay])
        cursor.execute(
            "INSERT INTO outbox_tally VALUES ('sent', 9), ('attempts', 12), ('failure X', 3)"
        )


def test_outbox_status_counts_documents_versions_and_buckets(documents: None) -> None:
    output = StringIO()
    call_command("outbox", "status", json=True, stdout=output)
    figures = json.loads(output.getvalue())
    assert 90 < figures.pop("oldest_seconds") < 150
    assert figures == {
        "documents": 3,
        "versions": sum(document.version - document.sent for document in Document.objects.all()),
        "failed": 1,
        "sent": 9,
        "attempts": 12,
        "failures": {"X": 3},
        "buckets": {"host:7": 2, "no relay": 62},
    }
    output = StringIO()
    call_command("outbox", "status", stdout=output)
    assert "documents: 3\n" in output.getvalue()
    assert "failures X: 3\nbuckets host:7: 2\nbuckets no relay: 62\n" in output.getvalue()


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"TOPICS": "x"}, "TOPICS must map"),
        ({"KAFKA": {}}, "KAFKA has no bootstrap.servers"),
        ({"KAFKA": {"bootstrap.servers": "x:1", "no.such": 1}}, "No such configuration property"),
    ],
)
def test_relay_does_not_start_when_settings_are_wrong(
    service: str, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], sentence: str
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    setting = {**settings.OUTBOX, **changes}
    with override_settings(OUTBOX=setting), pytest.raises(CommandError, match=sentence):
        call_command("outbox", "relay")


def test_metrics_of_the_outbox_are_valid_for_prometheus(documents: None) -> None:
    response = Client().get("/outbox/metrics")
    assert response.headers["Content-Type"] == status.CONTENT_TYPE
    text = response.content.decode()
    assert "outbox_pending_documents 3\n" in text
    assert 'outbox_failures_total{reason="X"} 3\n' in text
    assert 'outbox_buckets{relay="host:7"} 2\n' in text
    subprocess.run([promtool(), "check", "metrics"], input=text, text=True, check=True)


def test_metric_escapes_label_values() -> None:
    assert status._escape_label('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_admin_lists_waiting_documents_with_their_errors(documents: None) -> None:
    text = make_admin_browser().get(PAGE).content.decode()
    for word in (f"{KIND}/A1", f"{KIND}/A2", f"{KIND}/A3", "MSG_SIZE_TOO_LARGE", "Processing"):
        assert word in text
    assert f"{KIND}/A4" not in text
    assert text.index("column-last_error") < text.index("column-unsent")


@pytest.mark.parametrize("state, id", [("new", "A1"), ("failed", "A2"), ("processing", "A3")])
def test_admin_filters_documents_by_state(documents: None, state: str, id: str) -> None:
    response: Any = make_admin_browser().get(PAGE, {"state": state})
    assert [document.key for document in response.context["cl"].queryset] == [f"{KIND}/{id}"]


def test_admin_shows_a_document_with_its_versions(documents: None) -> None:
    document = Document.objects.get(pk=f"{KIND}/A1")
    response = make_admin_browser().get(f"{PAGE}{document.pk.replace('/', '_2F')}/change/")
    text = response.content.decode()
    assert "CREATE" in text
    assert "UPDATE" in text
    assert "m.prygunov" in text
    assert 'name="_save"' not in text
    assert (
        make_admin_browser().post(f"{PAGE}{document.pk.replace('/', '_2F')}/change/").status_code
        == 403
    )


def test_retry_action_makes_a_failed_document_due(documents: None) -> None:
    run_action(PAGE, "retry", CHOSEN_DOCUMENTS)
    document = Document.objects.get(pk=f"{KIND}/A2")
    assert document.next_attempt_at is not None
    assert document.next_attempt_at < document.recorded_at.replace(year=2100)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT next_attempt_at <= clock_timestamp() FROM outbox_document WHERE attempts > 0"
        )
        assert cursor.fetchone() == (True,)


def test_discard_action_skips_only_the_failed_version(documents: None) -> None:
    run_action(PAGE, "discard", CHOSEN_DOCUMENTS)
    sent = dict(Document.objects.values_list("key", "sent"))
    assert sent == {f"{KIND}/A1": 0, f"{KIND}/A2": 1, f"{KIND}/A3": 0, f"{KIND}/A4": 1}
    document = Document.objects.get(pk=f"{KIND}/A2")
    assert (document.attempts, document.last_error) == (0, "")
    [entry] = LogEntry.objects.filter(object_id=f"{KIND}/A2")
    assert entry.change_message == "Discarded version 1."


def test_outbox_admin_refuses_actions_of_a_login_that_may_only_view(documents: None) -> None:
    client = make_viewer_browser("view_document")
    assert client.get(PAGE).status_code == 200
    client.post(PAGE, {"action": "discard", "_selected_action": [f"{KIND}/A2"]})
    assert Document.objects.get(pk=f"{KIND}/A2").attempts == 3
