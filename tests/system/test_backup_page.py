"""The commands of docs/backup.md, as they are written: a base backup, and a restore to a moment."""

import os
import secrets
import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from annals.embedded import postgres
from annals.embedded.postgres import Postgres
from tests.consuming import until
from tests.docs_blocks.pages import BLOCKS, lines
from tests.processes import own_server

PAGE = "docs/backup.md"
PASSWORD = secrets.token_hex(16)

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[Postgres]:
    with own_server({"fsync": "off", "shared_buffers": "16MB"}) as made:
        yield made


def block(first: str) -> list[str]:
    """The lines of the block of the page that begins so."""
    [found] = [each for each in BLOCKS if each.page == PAGE and each.first.startswith(first)]
    return lines(found)


def execute(server: Postgres, *statements: str) -> None:
    with psycopg.connect(server.url("postgres"), autocommit=True) as plain:
        for each in statements:
            plain.execute(each)


def notes(server: Postgres) -> list[str]:
    with psycopg.connect(server.url("postgres")) as plain:
        return [str(text) for (text,) in plain.execute("SELECT text FROM note ORDER BY text")]


def test_what_the_page_says_restores_the_moment(server: Postgres) -> None:
    backup, data = server.home.parent / "backup", server.data
    owner = postgres.user_for_data(data)
    (backup / "wal").mkdir(parents=True)
    if owner is not None:
        for folder in (backup, backup / "wal", server.home):
            os.chown(folder, owner.pw_uid, owner.pw_gid)

    def here(line: str) -> str:
        line = line.replace("/var/lib/postgresql/18/main", str(data))
        line = line.replace("/var/lib/postgresql/18/lost", str(server.home / "lost"))
        line = line.replace("'...'", f"'{PASSWORD}'")
        line = line.replace("db.bank.example", f"127.0.0.1 --port {server.port()}")
        return line.replace("/backup", str(backup))

    def as_owner(line: str) -> None:
        path = f"{postgres.programs()}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", "-ec", here(line)], cwd="/", check=True, timeout=300,
            env=postgres.environment(PGPASSWORD=PASSWORD, PATH=path),
            user=owner.pw_uid if owner else None, group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
        )  # fmt: skip

    execute(server, *(here(each) for each in block("ALTER SYSTEM")))
    server.stop()
    server.start()
    execute(server, "CREATE TABLE note (text text)")
    for line in block("pg_basebackup"):
        as_owner(line)
    execute(server, "INSERT INTO note VALUES ('before')")
    with psycopg.connect(server.url("postgres")) as plain:
        [moment] = plain.execute("SELECT clock_timestamp()::text").fetchone() or [""]
    execute(server, "INSERT INTO note VALUES ('later')", "SELECT pg_switch_wal()")
    assert notes(server) == ["before", "later"]
    server.stop()
    for line in block("mv "):
        as_owner(line)
    with (data / "postgresql.auto.conf").open("a") as settings:
        for line in block("restore_command"):
            settings.write(here(line).replace("2026-11-22 10:00:00+00", moment) + "\n")
    server.start()
    until(lambda: not (data / "recovery.signal").exists(), "it does not end its recovery")
    assert notes(server) == ["before"]
