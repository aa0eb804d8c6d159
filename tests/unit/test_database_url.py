"""A DATABASE_URL that cannot be used stops every program with a sentence, without the password."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from annals import env
from tests.consuming import ROOT

# Parts of passwords, which nothing may print.
SECRETS = ("pw1", "s3cr", "pa4", "ss4", "zz5")
WRONG = {
    "another database": "mysql://root:pw1@h/x",
    "wrong escape": "postgresql://root:p%40s3cr%zz5@h/x",
    "at sign": "postgresql://root:pa4@ss4@h/x",
    "slash": "postgresql://root:pa4/ss4@h/x",
    "slash and at sign": "postgresql://root:pa4/x@ss4@h/x",
    "unknown parameter": "postgresql://root:pw1@h/x?pa4=ss4",
    "no scheme": "root:pw1@h/x",
    "key without value": "host=h password pw1",
}
RIGHT = [
    "postgresql://annals@a,b:5433/annals?target_session_attrs=read-write",
    "postgres://annals:p%40%2F%3A%25@[::1]:5432/annals",
    "postgresql:///annals?host=/run/postgresql",
    "postgresql://u:p:w?x@h/x",
    "host=h dbname=x password='p w'",
]


def environment(url: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    return {**plain, "DATABASE_URL": url, "ANNALS_SECRET_KEY": "k" * 40}


def said(url: str, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], env=environment(url), cwd=ROOT, capture_output=True, timeout=60
    )
    assert done.returncode == 1, done
    return (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("url", WRONG.values(), ids=WRONG)
def test_a_wrong_url_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(env.SettingError) as caught:
        env.read({"DATABASE_URL": url})
    assert str(caught.value).startswith("DATABASE_URL is wrong: ")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize("url", RIGHT)
def test_what_libpq_takes_is_taken(url: str) -> None:
    assert env.read({"DATABASE_URL": url}).database_url == url


GUNICORN = (
    "-m", "gunicorn", "--config", "python:annals.server", "--bind", "127.0.0.1:0", "annals.wsgi",
)  # fmt: skip


@pytest.mark.parametrize("url", [*WRONG.values()][:2], ids=[*WRONG][:2])
@pytest.mark.parametrize(
    "command", [("manage.py", "migrate"), GUNICORN], ids=["manage", "gunicorn"]
)
def test_programs_stop_with_one_sentence(command: tuple[str, ...], url: str) -> None:
    text = said(url, *command)
    assert text.startswith("annals: DATABASE_URL is wrong: ")
    assert text.count("\n") == 1
    assert not any(secret in text for secret in SECRETS)
