"""What operators see: the command, metrics, and the pages of the admin."""

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
from outbox import status
from outbox.models import Document
from tests.need import promtool
from tests.outbox import settings
from tests.outbox.staff import act, admin, viewer

KIND = "product-instance"
PAGE = "/admin/outbox/document/"
CHOSEN = [f"{KIND}/A1", f"{KIND}/A2"]


@pytest.fixture
def documents(service: str) -> None:
    """A1 waits with two versions, A2 failed, A3 is being sent, A4 is sent."""
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


def test_the_status(documents: None) -> None:
    output = StringIO()
    call_command("outbox", "status", json=True, stdout=output)
    found = json.loads(output.getvalue())
    assert 90 < found.pop("oldest_seconds") < 150
    assert found == {
        "documents": 3,
        "versions": sum(each.version - each.sent for each in Document.objects.all()),
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
def test_a_relay_does_not_start_with_wrong_settings(
    service: str, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], sentence: str
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    given = {**settings.OUTBOX, **changes}
    with override_settings(OUTBOX=given), pytest.raises(CommandError, match=sentence):
        call_command("outbox", "relay")


def test_metrics_are_what_prometheus_reads(documents: None) -> None:
    answer = Client().get("/outbox/metrics")
    assert answer.headers["Content-Type"] == status.CONTENT_TYPE
    text = answer.content.decode()
    assert "outbox_pending_documents 3\n" in text
    assert 'outbox_failures_total{reason="X"} 3\n' in text
    assert 'outbox_buckets{relay="host:7"} 2\n' in text
    subprocess.run([promtool(), "check", "metrics"], input=text, text=True, check=True)


def test_label_values_are_escaped() -> None:
    assert status._escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'


def test_the_list_has_what_waits_and_why(documents: None) -> None:
    text = admin().get(PAGE).content.decode()
    for word in (f"{KIND}/A1", f"{KIND}/A2", f"{KIND}/A3", "MSG_SIZE_TOO_LARGE", "Processing"):
        assert word in text
    assert f"{KIND}/A4" not in text
    assert text.index("column-last_error") < text.index("column-unsent")


@pytest.mark.parametrize("state, id", [("new", "A1"), ("failed", "A2"), ("processing", "A3")])
def test_the_list_by_state(documents: None, state: str, id: str) -> None:
    answer: Any = admin().get(PAGE, {"state": state})
    assert [each.key for each in answer.context["cl"].queryset] == [f"{KIND}/{id}"]


def test_a_document_with_its_versions(documents: None) -> None:
    document = Document.objects.get(pk=f"{KIND}/A1")
    answer = admin().get(f"{PAGE}{document.pk.replace('/', '_2F')}/change/")
    text = answer.content.decode()
    assert "CREATE" in text
    assert "UPDATE" in text
    assert "m.prygunov" in text
    assert 'name="_save"' not in text
    assert admin().post(f"{PAGE}{document.pk.replace('/', '_2F')}/change/").status_code == 403


def test_a_failed_document_is_tried_again(documents: None) -> None:
    act(PAGE, "retry", CHOSEN)
    document = Document.objects.get(pk=f"{KIND}/A2")
    assert document.next_attempt_at is not None
    assert document.next_attempt_at < document.recorded_at.replace(year=2100)
    with connection.cursor() as cursor:
        cursor.execute("SELECT next_attempt_at <= clock_timestamp() FROM outbox_document"
                       " WHERE attempts > 0")  # fmt: skip
        assert cursor.fetchone() == (True,)


def test_only_the_failed_version_is_discarded(documents: None) -> None:
    act(PAGE, "discard", CHOSEN)
    sent = dict(Document.objects.values_list("key", "sent"))
    assert sent == {f"{KIND}/A1": 0, f"{KIND}/A2": 1, f"{KIND}/A3": 0, f"{KIND}/A4": 1}
    document = Document.objects.get(pk=f"{KIND}/A2")
    assert (document.attempts, document.last_error) == (0, "")
    [entry] = LogEntry.objects.filter(object_id=f"{KIND}/A2")
    assert entry.change_message == "Discarded version 1."


def test_who_may_only_look_can_do_nothing(documents: None) -> None:
    client = viewer("view_document")
    assert client.get(PAGE).status_code == 200
    client.post(PAGE, {"action": "discard", "_selected_action": [f"{KIND}/A2"]})
    assert Document.objects.get(pk=f"{KIND}/A2").attempts == 3
