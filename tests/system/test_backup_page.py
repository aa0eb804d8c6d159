"""Runs the commands of docs/backup.md: a base backup, and a restore to a moment."""

import os
import secrets
import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from annals.embedded import postgres
from annals.embedded.postgres import EmbeddedPostgres
from tests.consuming import wait_until
from tests.docs_blocks.pages import BLOCKS, split_lines
from tests.processes import start_own_server

PAGE = "docs/backup.md"
PASSWORD = secrets.token_hex(16)

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with start_own_server({"fsync": "off", "shared_buffers": "16MB"}) as postgres:
        yield postgres


def read_block(first: str) -> list[str]:
    """Return the command lines of the code block in docs/backup.md that begins with `first`."""
    [selected_block] = [
        block for block in BLOCKS if block.page == PAGE and block.first_line.startswith(first)
    ]
    return split_lines(selected_block)


def execute_statements(server: EmbeddedPostgres, *statements: str) -> None:
    with psycopg.connect(server.build_url("postgres"), autocommit=True) as plain:
        for statement in statements:
            plain.execute(statement)


def list_notes(server: EmbeddedPostgres) -> list[str]:
    with psycopg.connect(server.build_url("postgres")) as plain:
        return [str(text) for (text,) in plain.execute("SELECT text FROM note ORDER BY text")]


def test_commands_of_backup_page_restore_the_database_to_a_moment(
    server: EmbeddedPostgres,
) -> None:
    backup, data = server.home.parent / "backup", server.data
    owner = postgres.get_user_for_data(data)
    (backup / "wal").mkdir(parents=True)
    if owner is not None:
        for folder in (backup, backup / "wal", server.home):
            os.chown(folder, owner.pw_uid, owner.pw_gid)

    def replace_folder(line: str) -> str:
        line = line.replace("/var/lib/postgresql/18/main", str(data))
        line = line.replace("/var/lib/postgresql/18/lost", str(server.home / "lost"))
        line = line.replace("'...'", f"'{PASSWORD}'")
        line = line.replace("db.bank.example", f"127.0.0.1 --port {server.get_port()}")
        return line.replace("/backup", str(backup))

    def as_owner(line: str) -> None:
        path = f"{postgres.find_programs()}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", "-ec", replace_folder(line)],
            cwd="/",
            check=True,
            timeout=300,
            env=postgres.make_environment(PGPASSWORD=PASSWORD, PATH=path),
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
        )

    execute_statements(
        server, *(replace_folder(statement) for statement in read_block("ALTER SYSTEM"))
    )
    server.stop()
    server.start()
    execute_statements(server, "CREATE TABLE note (text text)")
    for line in read_block("pg_basebackup"):
        as_owner(line)
    execute_statements(server, "INSERT INTO note VALUES ('before')")
    with psycopg.connect(server.build_url("postgres")) as plain:
        [moment] = plain.execute("SELECT clock_timestamp()::text").fetchone() or [""]
    execute_statements(server, "INSERT INTO note VALUES ('later')", "SELECT pg_switch_wal()")
    assert list_notes(server) == ["before", "later"]
    server.stop()
    for line in read_block("mv "):
        as_owner(line)
    with (data / "postgresql.auto.conf").open("a") as settings:
        for line in read_block("restore_command"):
            settings.write(replace_folder(line).replace("2026-11-22 10:00:00+00", moment) + "\n")
    server.start()
    wait_until(lambda: not (data / "recovery.signal").exists(), "it does not end its recovery")
    assert list_notes(server) == ["before"]
