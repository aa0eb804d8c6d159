"""A PostgreSQL that speaks Russian: what is wrong is said as of one that speaks English."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import pq

from tests.consuming import ROOT
from tests.matrix import debian

SECRET = secrets.token_hex(16)


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """HOST:PORT of a server that asks all logins but its superuser for a password."""
    if not any(Path("/usr/share/locale/ru/LC_MESSAGES").glob("postgres-*.mo")):
        pytest.skip("the Russian messages of PostgreSQL are not installed")
    if pq.version() < 180000:
        pytest.skip("libpq before 18 does not trace the answer to a login")
    with debian("ru") as (_, url):
        if not url:
            pytest.skip("Debian's PostgreSQL is not installed")
        with psycopg.connect(url, autocommit=True) as plain:
            plain.execute(f"CREATE ROLE teller LOGIN PASSWORD '{SECRET}'")
            plain.execute(f"CREATE ROLE crowd LOGIN CONNECTION LIMIT 0 PASSWORD '{SECRET}'")
            plain.execute("CREATE ROLE trusted LOGIN")
            plain.execute("CREATE ROLE closed NOLOGIN")
            [hba] = plain.execute("SHOW hba_file").fetchone() or [""]
            Path(hba).write_text(
                "host all annals,trusted,nobody,closed 127.0.0.1/32 trust\n"
                "host all teller,crowd 127.0.0.1/32 scram-sha-256\n"
            )
            plain.execute("SELECT pg_reload_conf()")
        yield url.partition("@")[2].partition("/")[0]


def run(url: str, home: Path, *words: str) -> tuple[int, list[str]]:
    """The exit code, and the lines on standard error."""
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "ANNALS_HOME": str(home),
             "ANNALS_SECRET_KEY": "k" * 40, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
             "DATABASE_URL": url},
    )  # fmt: skip
    assert SECRET not in done.stderr
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("login", "password", "database", "said"),
    [
        ("teller", "another", "postgres", "refuses the login teller"),
        ("nobody", "", "postgres", "refuses the login nobody"),
        ("closed", "", "postgres", "refuses the login closed"),
        ("teller", SECRET, "anals", "has no database anals. Correct its name"),
        ("stranger", "", "postgres", "does not admit the login stranger"),
        ("crowd", SECRET, "postgres", "has no connection left for the login"),
    ],
    ids=["password", "role", "nologin", "database", "pg_hba", "connections"],
)
def test_the_sentence_is_the_same(
    login: str, password: str, database: str, said: str, place: str, tmp_path: Path
) -> None:
    url = f"postgresql://{login}:{password}@{place}/{database}"
    with pytest.raises(psycopg.OperationalError, match="ВАЖНО"):
        psycopg.connect(url)
    code, lines = run(url, tmp_path, "migrate")
    assert code == 1
    [line] = lines
    assert line.startswith(f"annals: PostgreSQL at {place} {said}")
    assert "ВАЖНО" not in line


def test_a_consumer_whose_login_is_refused_ends(place: str, tmp_path: Path) -> None:
    url = f"postgresql://teller:{SECRET[1:]}@{place}/postgres"
    code, lines = run(url, tmp_path, "consume", "--until-idle", "1")
    assert code == 1
    assert "refuses the login teller" in lines[-1]


def test_a_password_that_is_not_given_is_asked_for(place: str, tmp_path: Path) -> None:
    code, [line] = run(f"postgresql://teller@{place}/postgres", tmp_path, "migrate")
    assert code == 1
    assert f"{place} asks for the password of teller, and none is given" in line
    assert "PGPASSFILE" in line
