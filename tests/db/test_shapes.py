"""The --json output of commands has the format that docs/schema/commands.json describes."""

from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from django.conf import settings
from django.core.management import get_commands, load_command_class

from history.common import clock
from history.kinds.entities import ROOT
from ingest.models import Ledger
from ingest.store.batch import OffsetGap
from tests.command_shapes import load_shapes, parse_shaped
from tests.db.commands import run_command
from tests.db.ingested import Ingested, list_quarantined
from tests.messages import SOURCE, make_value

pytestmark = pytest.mark.usefixtures("tables")

TRACED = ("--entity", ROOT.name, "--id", "a", "--version", "0", "--offline")
OURS = ("annals", "annals.access", "history", "ingest")
# Commands that need a broker, an old service or an archive, with the test that compares the output.
ELSEWHERE = {
    "changes": "db/test_changes_screen.py",
    "compare-old": "db/test_compare_old.py",
    "consume": "consuming.py",
    "export": "db/test_export.py",
    "gaps heal": "kafka/test_heal.py",
    "distribute": "citus/test_distribute.py",
    "partitions verify --archive": "db/test_archive_check.py",
    "simulate": "kafka/test_simulate.py",
}


def list_actions(parser: ArgumentParser, words: str) -> Iterator[tuple[str, ArgumentParser]]:
    """Yield the words and the parser of a command and of each of its subcommands."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for word, sub in action.choices.items():
                yield from list_actions(sub, f"{words} {word}")


def list_json_commands() -> set[str]:
    commands = set()
    apps = get_commands()
    for name in sorted(app for app in apps if apps[app] in OURS):
        root_parser = load_command_class(apps[name], name).create_parser("annals", name)
        for words, parser in list_actions(root_parser, name):
            if "--json" in parser._option_string_actions:
                commands.add(words)
    return commands


def test_every_command_with_json_output_is_in_commands_json() -> None:
    command_names = {words.partition(" --")[0] for words in load_shapes()}
    assert list_json_commands() == command_names


def test_every_output_format_in_commands_json_is_checked_by_a_test() -> None:
    tests = Path(__file__).resolve().parents[1]
    for words, file in ELSEWHERE.items():
        assert f'shaped("{words}", ' in (tests / file).read_text()


@pytest.fixture
def filled(ingested: Ingested, monkeypatch: pytest.MonkeyPatch) -> int:
    """Store versions with a gap, and a bad message; return the id of the bad message."""
    now = clock.now()
    for version, gap in ((0, OffsetGap(0, 7, lost=True)), (3, None)):
        ingested.write(make_value(id="a", version=version, updatedAt=now.isoformat()), gap=gap)
    Ledger.objects.filter(topic=SOURCE.topic).update(halted_at=now, high_watermark=9)
    ingested.write(b"no json")
    few = msgspec.structs.replace(settings.ANNALS, retention_days=9, ahead_days=1)
    monkeypatch.setattr(settings, "ANNALS", few)
    return int(list_quarantined()[0]["id"])


def test_json_output_of_commands_has_the_format_in_file_commands_json(filled: int) -> None:
    command_words = {
        "capacity": ("capacity", "--rps", "10"),
        "gaps": ("gaps",),
        "ledger": ("ledger", "--offline"),
        "partitions list": ("partitions", "list"),
        "partitions plan": ("partitions", "plan"),
        "partitions maintain": ("partitions", "maintain"),
        "partitions verify": ("partitions", "verify"),
        "quarantine list": ("quarantine", "list"),
        "quarantine list --ids": ("quarantine", "list", "--ids"),
        "quarantine show": ("quarantine", "show", str(filled)),
        "search index": ("search", "index"),
        "trace": ("trace", *TRACED),
    }
    assert command_words.keys() == load_shapes().keys() - ELSEWHERE.keys()
    for name, words in command_words.items():
        parse_shaped(name, run_command(*words, "--json").out)
