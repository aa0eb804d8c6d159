"""Commands print texts from messages and from the old service, and escape control characters."""

import pytest
from django.core.management import call_command

from history.common import clock
from history.kinds.entities import ROOT
from history.models import VersionGap
from ingest.models import Quarantined
from tests.db.commands import read_output, run_command
from tests.db.ingest_rows import create_quarantined
from tests.db.store import Store, minute
from tests.old_service import OldServiceServer

FORGED = "k\x1b[2J\n12 would be discarded\x9b\u2028"

pytestmark = pytest.mark.django_db


@pytest.fixture
def hostile_message() -> Quarantined:
    """Put a message into quarantine with texts that would control a terminal."""
    return create_quarantined(
        key=FORGED.encode(),
        value=b'{\n\t"a": "\x1b[2J\xff"}',
        reason="not_json",
        detail=f"[red]{FORGED}",
    )


def test_quarantine_show_escapes_control_characters(hostile_message: Quarantined) -> None:
    text = read_output("quarantine", "show", str(hostile_message.id))
    assert set(text) - {"\n", "\t"} == {c for c in text if c.isprintable()}
    assert '{\n\t"a": "\\x1b[2J\\xff"}' in text
    assert "12 would be discarded" not in text.splitlines()
    assert {"settled at: none", "outcome: none"} < set(text.splitlines())


def test_gaps_and_trace_commands_escape_control_characters(hostile_message: Quarantined) -> None:
    hostile_message.entity, hostile_message.entity_id, hostile_message.version = (
        ROOT.name,
        FORGED,
        1,
    )
    hostile_message.save()
    moment = clock.now()
    VersionGap.objects.create(
        entity=ROOT.name,
        document=FORGED,
        first=1,
        last=1,
        beginning=False,
        client_id=f"[red]{FORGED}",
        since=moment,
        until=moment,
        found_at=moment,
    )
    for words in (
        ("gaps",),
        ("trace", "--entity", ROOT.name, "--id", FORGED, "--version", "1"),
    ):
        text = read_output(*words)
        assert set(text) - {"\n"} == {c for c in text if c.isprintable()}, words
        assert "12 would be discarded" not in text.splitlines()
        assert "k\\x1b[2J\\n12 would be discarded" in text, words


def test_command_compare_old_escapes_control_characters_in_names_from_old_service(
    store: Store, old: OldServiceServer, own_breaker: object
) -> None:
    store.add("A1", 0, {FORGED: 1}, minute(0), author=None)
    old.add_version("A1", 0, {FORGED: 2}, minute(0), author=None)
    text = run_command("compare-old").out
    assert set(text) - {"\n"} == {c for c in text if c.isprintable()}
    assert "k\\x1b[2J\\n12 would be discarded" in text


def test_quarantine_show_raw_prints_exact_bytes(
    hostile_message: Quarantined, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    call_command("quarantine", "show", str(hostile_message.id), "--raw")
    assert capsysbinary.readouterr().out == hostile_message.value


def test_quarantine_list_does_not_interpret_markup_in_details(
    hostile_message: Quarantined, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    text = read_output("quarantine", "list", "--ids", "--reason", "not_json")
    assert "\x1b" not in text
    assert "[red]k\\x1b[2J\\n12 would be discarded" in text
