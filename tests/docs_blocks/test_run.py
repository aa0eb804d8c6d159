"""The commands and the SQL of the documentation run in their order, on a new PostgreSQL.

The page that installs Annals comes first.
"""

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
    BLOCKS_HERE,
    SHELL,
    Block,
    list_commands,
    select_annals_words,
    split_lines,
)
from tests.forked import CommandForker, CommandResult

TOPIC: Final = "top-storage.export.product-instance"
MIGRATION: Final = "top-storage.export.migration.product-instance"
# This page creates the database. The other pages run after it.
FIRST: Final = "docs/first-hour.md"
# The day that the pages restore, and the days that they export.
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
# The warnings of `check --deploy` that remain when all pages were followed. They are about settings
# of the web, Kafka and the backup, which this test does not have.
NOT_SET_HERE: Final = ("W105", "W106", "W116", "W121")
# These commands ask Kafka. The test has no broker, so they report this and use the database only.
ASK_KAFKA: Final = ("check", "ledger")
SHORT_TIMEOUTS: Final = {
    f"ingest.kafka.{module}.TIMEOUT_SECONDS": 0.2 for module in ("source", "brokers", "retention")
}
PASSWORD: Final = "of-the-tests"


@dataclass(frozen=True)
class DocsInstallation:
    """A PostgreSQL, and a process that runs the commands of the documentation against it."""

    server: EmbeddedPostgres
    env: Mapping[str, str]  # of the commands
    forker: CommandForker
    home: Path

    def connect_as_admin(
        self, database: str = "postgres"
    ) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.server.build_url(database), autocommit=True)

    def connect_as_owner(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.env["DATABASE_URL"], autocommit=True)

    def run(self, words: tuple[str, ...]) -> CommandResult:
        constants = SHORT_TIMEOUTS if words[0] in ASK_KAFKA else {}
        arguments = [self.replace_placeholder(word) for word in words]
        return self.forker.run_command(*arguments, env=self.env, constants=constants)

    def replace_placeholder(self, word: str) -> str:
        """Return a word of a page, or its value in this test if the word is a placeholder."""
        if re.fullmatch(r"\w+\.password|FILE", word):
            file = self.home / word
            private_files.write_private_file(file, f"{PASSWORD}-{word}-of-the-logins")
            return str(file)
        return {"/export": str(self.home / "export"), "ID": "A1", "NAME": "m.operator"}.get(
            word, word
        )


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[DocsInstallation]:
    """An installation of Annals with an empty PostgreSQL server.

    The SQL in the documentation creates the database and the role that owns the database.
    """
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
        # Few, because creating days takes time. No day of the test expires at midnight.
        "ANNALS_RETENTION_DAYS": "2",
        "ANNALS_ARCHIVE_URL": str(tmp_path / "archive"),
        "DATABASE_URL": f"postgresql://owner_login:{PASSWORD}@127.0.0.1:{server.get_port()}/annals",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    forker = CommandForker({**env, "DJANGO_SETTINGS_MODULE": "annals.settings"})
    yield DocsInstallation(server, env, forker, tmp_path)
    forker.close_process()
    server.stop("immediate")
    shutil.rmtree(home)


def test_commands_and_sql_in_documentation_run_without_errors(
    installation: DocsInstallation,
) -> None:
    """A command that occurs on several pages is run once."""
    wrong: dict[str, str] = {}
    outputs: dict[str, str] = {}
    for page in [FIRST, *dict.fromkeys(item.page for item in BLOCKS_HERE if item.page != FIRST)]:
        for block in (item for item in BLOCKS_HERE if item.page == page):
            if block.language == "sql":
                run_sql(installation, block, outputs)
            elif block.language in SHELL:
                wrong |= run_shell(installation, block, outputs)
        if page == FIRST:
            store_some_days(installation)
    for text in AT_THE_END:
        wrong |= run_annals_command(installation, text, outputs)
    assert not wrong, "\n".join(wrong.values())
    assert len(outputs) > 50
    warnings = re.findall(r"\(annals\.(W\d+)\)", outputs[AT_THE_END[0]])
    assert warnings == [*NOT_SET_HERE], outputs[AT_THE_END[0]]
    assert [item for item in (*ONLY_PARSED, *ENDS) if item not in outputs] == []


def run_sql(installation: DocsInstallation, block: Block, outputs: dict[str, str]) -> None:
    """Run the SQL of a block.

    SELECT runs as the owner of the tables. Other statements are about roles, databases and
    functions, and run as an administrator.
    """
    for item in re.sub(r"--.*", "", block.text).split(";"):
        statement = " ".join(item.split())
        if not statement or statement in outputs:
            continue
        outputs[statement] = ""
        if statement.startswith("SELECT"):
            with installation.connect_as_owner() as owner:
                owner.execute(statement)
        else:
            of_annals_itself = "FUNCTION" in statement
            with installation.connect_as_admin(
                "annals" if of_annals_itself else "postgres"
            ) as admin:
                admin.execute(statement.replace("'...'", f"'{PASSWORD}'"))


def run_shell(
    installation: DocsInstallation, block: Block, outputs: dict[str, str]
) -> dict[str, str]:
    """Run the `annals` commands of a block, except the commands that `outputs` or AT_THE_END has.

    Returns:
        The commands that failed, with their exit codes and outputs.
    """
    wrong = {}
    for line in split_lines(block):
        for command in list_commands(block.page, line):
            words = select_annals_words(command.words)
            text = shlex.join(words or ())
            if words and text not in {*outputs, *AT_THE_END}:
                wrong |= run_annals_command(installation, text, outputs)
    return wrong


def run_annals_command(
    installation: DocsInstallation, text: str, outputs: dict[str, str]
) -> dict[str, str]:
    """Run a command of Annals, and add the command and its output to `outputs`.

    A command in ONLY_PARSED does not run. Its output is then an empty text.

    Args:
        text: The words of the command line after `annals`.

    Returns:
        The command with its exit code and output if these differ from the expected ones, or else
        an empty dict.
    """
    outputs[text] = ""
    if text in ONLY_PARSED:
        return {}
    code, part = ENDS.get(text, (0, ""))
    ended = installation.run(tuple(shlex.split(text)))
    outputs[text] = ended.out + ended.err
    right = ended.code == code and part in outputs[text]
    return {} if right else {text: f"{ended.code}: {ended.out}{ended.err}"}


def store_some_days(installation: DocsInstallation) -> None:
    """Store data that an installation has after some days.

    These are versions, an archived day, messages in quarantine, and a topic that is read to its
    end.
    """
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    with installation.connect_as_owner() as owner:
        for entity in ENTITIES:
            for day in (ARCHIVED, *(EXPORTED if entity.root else ()), yesterday):
                insert_version(owner, entity, day)
        for number, (reason, value) in enumerate(BAD, 17):
            owner.execute(BAD_MESSAGE, [number, TOPIC, number, value, reason])
        owner.execute(READ_TO_ITS_END, [MIGRATION])
    for words in (("partitions", "seal", f"{ARCHIVED}"), ("partitions", "maintain")):
        ended = installation.run(words)
        assert ended.code == 0, ended.err


def insert_version(
    owner: psycopg.Connection[tuple[object, ...]], entity: EntityKind, day: date
) -> None:
    """Insert a version of this day, and create the partition of the day."""
    days.create_partition(owner, entity.table, day)
    values = {
        "id": "A1",
        "version": 0,
        "data": "{}",
        "client_id": "test",
        "type": 0,
        "updated_at": datetime.combine(day, time(12), UTC),
    }
    if not entity.root:
        values["product_instance_id"] = "A1"
    marks = ", ".join(["%s"] * len(values))
    query = f"INSERT INTO {entity.table} ({', '.join(values)}) VALUES ({marks})"
    owner.execute(query, list(values.values()))
