"""The commands and the SQL of the pages are run in their order, in a PostgreSQL of their own: at
first the pages that install it."""

import os
import re
import shlex
import shutil
import string
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final

import psycopg
import pytest

from annals.embedded.postgres import EmbeddedPostgres
from history.common import private_files
from history.kinds.entities import ENTITIES, EntityKind
from history.store.days import days
from tests.docs_blocks.named import AT_THE_END, ENDS, ONLY_PARSED
from tests.docs_blocks.pages import (
    HERE,
    SHELL,
    Block,
    list_commands,
    select_annals_words,
    split_lines,
)
from tests.forked import CommandForker, CommandResult

TOPIC: Final = "top-storage.export.product-instance"
MIGRATION: Final = "top-storage.export.migration.product-instance"
# It makes the database; the others are run in their order after it.
FIRST: Final = "docs/first-hour.md"
# The day that the pages restore, and those that they export.
ARCHIVED: Final = date(2026, 8, 21)
EXPORTED: Final = tuple(date(2026, 11, number) for number in range(1, 8))
BAD: Final = (("not_json", b"{ no"), ("empty_value", None))
BAD_MESSAGE: Final = """
INSERT INTO ingest_quarantine (id, topic, topic_id, partition, "offset", timestamp, day, value,
    headers, reason, detail, status, attempts, first_seen, outcome)
VALUES (%s, %s, 't', 0, %s, now(), current_date, %s, '[]', %s, '', 'new', 0, now(), '')
"""
READ_TO_ITS_END: Final = """
INSERT INTO ingest_ledger (topic, topic_id, partition, first_offset, next_offset, high_watermark,
    read, stored, repeated, expired, quarantined, skipped, lost, epoch, halted_why, updated_at,
    checked_at)
VALUES (%s, 't', 0, 0, 10, 10, 10, 10, 0, 0, 0, 0, 0, 0, '', now(), now())
"""
# What `check --deploy` has left to say when the pages were followed: what this test does not have,
# of the web, Kafka and the backup.
NOT_SET_HERE: Final = ("W105", "W106", "W116", "W121")
# Without a broker: the commands that ask it say so, and answer from the database.
ASK_KAFKA: Final = ("check", "ledger")
SOON: Final = {
    f"ingest.kafka.{module}.TIMEOUT_SECONDS": 0.2 for module in ("source", "brokers", "retention")
}
WORD: Final = "of-the-tests"


@dataclass(frozen=True)
class Place:
    """A server, where its owner finds it, and the process that runs commands."""

    server: EmbeddedPostgres
    env: Mapping[str, str]
    forking: CommandForker
    home: Path

    def connect_as_admin(
        self, database: str = "postgres"
    ) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.server.build_url(database), autocommit=True)

    def connect_as_owner(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.env["DATABASE_URL"], autocommit=True)

    def run(self, words: tuple[str, ...]) -> CommandResult:
        constants = SOON if words[0] in ASK_KAFKA else {}
        arguments = [self.replace_place(word) for word in words]
        return self.forking.run_command(*arguments, env=self.env, constants=constants)

    def replace_place(self, word: str) -> str:
        """A word of the page, with a place of this test where the page has one of its own."""
        if re.fullmatch(r"\w+\.password|FILE", word):
            file = self.home / word
            private_files.write_private_file(file, f"{WORD}-{word}-of-the-logins")
            return str(file)
        return {"/export": str(self.home / "export"), "ID": "A1", "NAME": "m.operator"}.get(
            word, word
        )


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Empty: the owner and the database are made by the SQL of the pages."""
    home = Path(tempfile.mkdtemp(prefix="annals-docs-"))
    server = EmbeddedPostgres(home / "postgres", {"fsync": "off"})
    server.start()
    with psycopg.connect(server.build_url("postgres"), autocommit=True) as admin:
        admin.execute("DROP DATABASE annals")
        admin.execute("DROP ROLE owner_login")
    env = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "ANNALS_HOME": str(tmp_path / "home"),
        "ANNALS_SECRET_KEY": string.ascii_letters,
        "ANNALS_ALLOWED_HOSTS": "annals.bank.example",
        "ANNALS_RETENTION_DAYS": "2",  # few days to make, and none expires at midnight
        "ANNALS_ARCHIVE_URL": str(tmp_path / "archive"),
        "DATABASE_URL": f"postgresql://owner_login:{WORD}@127.0.0.1:{server.get_port()}/annals",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    forking = CommandForker({**env, "DJANGO_SETTINGS_MODULE": "annals.settings"})
    yield Place(server, env, forking, tmp_path)
    forking.close_process()
    server.stop("immediate")
    shutil.rmtree(home)


def test_commands_and_sql_in_documentation_run_without_errors(place: Place) -> None:
    """A command that occurs on several pages is run once."""
    wrong: dict[str, str] = {}
    outputs: dict[str, str] = {}
    for page in [FIRST, *dict.fromkeys(item.page for item in HERE if item.page != FIRST)]:
        for block in (item for item in HERE if item.page == page):
            if block.language == "sql":
                run_sql(place, block, outputs)
            elif block.language in SHELL:
                wrong |= run_shell(place, block, outputs)
        if page == FIRST:
            fill(place)
    for text in AT_THE_END:
        wrong |= run_text(place, text, outputs)
    assert not wrong, "\n".join(wrong.values())
    assert len(outputs) > 50
    warnings = re.findall(r"\(annals\.(W\d+)\)", outputs[AT_THE_END[0]])
    assert warnings == [*NOT_SET_HERE], outputs[AT_THE_END[0]]
    assert [item for item in (*ONLY_PARSED, *ENDS) if item not in outputs] == []


def run_sql(place: Place, block: Block, outputs: dict[str, str]) -> None:
    """As an administrator where it is about roles and databases, as the owner of the tables
    otherwise."""
    for item in re.sub(r"--.*", "", block.text).split(";"):
        statement = " ".join(item.split())
        if not statement or statement in outputs:
            continue
        outputs[statement] = ""
        if statement.startswith("SELECT"):
            with place.connect_as_owner() as owner:
                owner.execute(statement)
        else:
            of_annals_itself = "FUNCTION" in statement
            with place.connect_as_admin("annals" if of_annals_itself else "postgres") as admin:
                admin.execute(statement.replace("'...'", f"'{WORD}'"))


def run_shell(place: Place, block: Block, outputs: dict[str, str]) -> dict[str, str]:
    """What is wrong, by command."""
    wrong = {}
    for line in split_lines(block):
        for command in list_commands(block.page, line):
            words = select_annals_words(command.words)
            text = shlex.join(words or ())
            if words and text not in {*outputs, *AT_THE_END}:
                wrong |= run_text(place, text, outputs)
    return wrong


def run_text(place: Place, text: str, outputs: dict[str, str]) -> dict[str, str]:
    """What is wrong; empty: nothing, or it is only parsed."""
    outputs[text] = ""
    if text in ONLY_PARSED:
        return {}
    code, part = ENDS.get(text, (0, ""))
    ended = place.run(tuple(shlex.split(text)))
    outputs[text] = ended.out + ended.err
    right = ended.code == code and part in outputs[text]
    return {} if right else {text: f"{ended.code}: {ended.out}{ended.err}"}


def fill(place: Place) -> None:
    """What an installation has after some days: versions, an archive, messages in quarantine, a
    topic that is read to its end."""
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    with place.connect_as_owner() as owner:
        for entity in ENTITIES:
            for day in (ARCHIVED, *(EXPORTED if entity.root else ()), yesterday):
                add(owner, entity, day)
        for number, (reason, value) in enumerate(BAD, 17):
            owner.execute(BAD_MESSAGE, [number, TOPIC, number, value, reason])
        owner.execute(READ_TO_ITS_END, [MIGRATION])
    for words in (("partitions", "seal", f"{ARCHIVED}"), ("partitions", "maintain")):
        ended = place.run(words)
        assert ended.code == 0, ended.err


def add(owner: psycopg.Connection[tuple[object, ...]], entity: EntityKind, day: date) -> None:
    """A version of this day."""
    days.create_partition(owner, entity.table, day)
    values = {"id": "A1", "version": 0, "data": "{}", "client_id": "test", "type": 0,
              "updated_at": datetime.combine(day, time(12), UTC)}  # fmt: skip
    if not entity.root:
        values["product_instance_id"] = "A1"
    marks = ", ".join(["%s"] * len(values))
    query = f"INSERT INTO {entity.table} ({', '.join(values)}) VALUES ({marks})"
    owner.execute(query, list(values.values()))
