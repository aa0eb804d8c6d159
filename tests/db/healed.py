"""A real outbox next to the store, and what `annals gaps heal` makes of gaps in the store."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.db import connection
from msgspec.structs import replace
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pytest_django import DjangoDbBlocker

from annals.access.models import JournalEntry
from history.base import clock
from history.entities import ROOT
from history.gap_models import (
    GapAnswer,
    GapDay,
    GapDocument,
    GapPending,
    GapRun,
    GapSource,
    RecoveredVersion,
    VersionGap,
)
from history.gaps.run import run
from history.window import Window
from ingest.source.message import Message
from ingest.store.session import connect
from ingest.store.transaction import Writer
from outbox.message import Version
from tests.consuming import ROOT as REPOSITORY
from tests.db.ingested import Ingested, claim_all, empty
from tests.messages import SOURCE
from tests.outbox.serving import TOKEN, serving
from tests.shape import shaped

TABLES = (
    GapAnswer,
    GapSource,
    RecoveredVersion,
    VersionGap,
    GapDocument,
    GapPending,
    GapDay,
    GapRun,
)
CHILD = "product-task"
TIMEOUT = 3.0


@dataclass
class Outbox:
    """A service with the outbox, as a process. values: the messages that it has sent, by entity/id
    and number."""

    database: str
    url: str
    values: dict[tuple[str, int], bytes]

    def execute(self, statement: str, *values: object) -> None:
        with psycopg.connect(self.database, autocommit=True) as plain:
            plain.execute(statement, values)

    def message(self, id: str, number: int, offset: int) -> Message:
        """As Kafka brings it."""
        value = self.values[f"{ROOT.name}/{id}", number]
        return Message(SOURCE.topic, SOURCE.partition, offset, -1, id.encode(), value)


def documents() -> Iterator[str]:
    """A1 to A9 with ten versions each, and a child of A1."""
    for number in range(1, 11):
        for id in range(1, 10):
            data = {"rate": f"{number}.{id}", "note": "Ж\u2028 " * number, "exact": 10**20 + number}
            yield json.dumps([ROOT.name, f"A{id}", None, "m.prygunov", data])
        yield json.dumps([CHILD, "T1", "A1", None, {"pid": "T1", "n": number}])


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outbox]:
    """The service, with what documents() says, all of it sent."""
    name, folder = f"heal_{secrets.token_hex(4)}", tmp_path_factory.mktemp("shop")
    address = os.environ["DATABASE_URL"]
    with psycopg.connect(address, autocommit=True) as plain:
        plain.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.outbox.writes"],
            input="\n".join(documents()),
            text=True,
            check=True,
            cwd=REPOSITORY,
            env={**os.environ, "OUTBOX_TEST_DATABASE": name},
        )
        database = make_conninfo(address, dbname=name)
        with serving(name, folder) as url:
            yield Outbox(database, url, _values(database))
    finally:
        with psycopg.connect(address, autocommit=True) as plain:
            plain.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _values(database: str) -> dict[tuple[str, int], bytes]:
    columns = ", ".join(Version.__slots__)
    with psycopg.connect(database) as plain:
        rows = plain.execute(f"SELECT {columns} FROM outbox_message").fetchall()
    found = [Version(*row) for row in rows]
    return {(each.document, each.version): each.value() for each in found}


@dataclass
class Healed:
    """The store, and the file of sources. sources: name and address of each."""

    folder: Path
    ingested: Ingested
    monkeypatch: pytest.MonkeyPatch
    sent: int = 0

    def sources(self, *urls: str, **more: object) -> Path:
        """Have these asked; the first is named shop, the others other1, other2."""
        token = self.folder / "token"
        token.write_text(str(more.pop("token", TOKEN)))
        given: dict[str, object] = {
            "kinds": [ROOT.name, CHILD],
            "seconds": TIMEOUT,
            "requests_per_second": 100,
            **more,
        }
        lines = []
        for number, url in enumerate(urls):
            name = f"other{number}" if number else "shop"
            values = {"name": name, "url": url, "token_file": str(token), **given}
            lines += [
                "[[source]]",
                *(f"{key} = {json.dumps(each)}" for key, each in values.items()),
            ]
        file = self.folder / "sources.toml"
        file.write_text("\n".join(lines))
        changed = replace(settings.ANNALS, sources_file=file)
        self.monkeypatch.setattr(settings, "ANNALS", changed)
        return file

    def brings(self, shop: Outbox, id: str, *numbers: int) -> None:
        """Kafka brings these versions."""
        messages = [shop.message(id, number, self.sent + at) for at, number in enumerate(numbers)]
        self.sent += len(messages)
        self.ingested.write(*messages)

    def heal(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        """What a run says of each source."""
        out, ended = StringIO(), 0
        try:
            call_command("gaps", "heal", "--json", *words, stdout=out, stderr=StringIO())
        except SystemExit as end:
            ended = int(end.code or 0)
        assert ended == code
        found: list[dict[str, Any]] = shaped("gaps heal", out.getvalue())["sources"]
        return found


def find() -> None:
    """A run of `annals gaps`, after PostgreSQL has counted what came."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    given = settings.ANNALS
    moment = clock.now()
    run(Window.at(moment, given.retention_days, given.ahead_days), moment)


def open_gaps() -> list[tuple[str, int, int]]:
    rows = VersionGap.objects.filter(closed_at=None).order_by("document", "first")
    return list(rows.values_list("document", "first", "last"))


def closed() -> list[tuple[str, int, int, str]]:
    rows = VersionGap.objects.exclude(closed_at=None).order_by("document", "first")
    return list(rows.values_list("document", "first", "last", "outcome"))


def noted() -> list[tuple[str, int, str]]:
    """Where recovered versions came from."""
    rows = RecoveredVersion.objects.order_by("row_id", "version")
    return list(rows.values_list("row_id", "version", "source"))


def clear() -> None:
    for model in (*TABLES, JournalEntry, Session):
        model.objects.all().delete()
    empty()


@contextmanager
def _store(
    folder: Path, monkeypatch: pytest.MonkeyPatch, blocker: DjangoDbBlocker
) -> Iterator[Healed]:
    with blocker.unblock():
        clear()
        ingested = Ingested(Writer(connect), claim_all())
        try:
            yield Healed(folder, ingested, monkeypatch)
        finally:
            ingested.writer.close()
            clear()


@pytest.fixture
def healed(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Healed]:
    """An empty store whose rows are committed."""
    with _store(tmp_path, monkeypatch, django_db_blocker) as found:
        yield found
