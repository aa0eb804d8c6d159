"""`annals check --deploy` names what an installation lacks, in the order of its first hour."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from pytest_django import Settings

from annals import embedded, env
from annals.access import address
from annals.operations.deploy_checks import first_hour
from history.base import clock
from history.gap_models import GapRun
from ingest.models import JobRun
from ingest.source import kafka
from tests.db.noted import gaps_ran, maintain_ran

ROOT = Path(__file__).resolve().parents[2]
NOTHING_SET = ["W101", "W102", "W103", "W104", "W105", "W106"]
# A port that nobody listens on.
NOBODY = "127.0.0.1:9"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers at once."""
    monkeypatch.setattr(kafka, "TIMEOUT_SECONDS", 0.2)


def given(settings: Settings, **values: str) -> None:
    """The settings of an installation, from an environment with these variables."""
    settings.ANNALS = env.read(values)
    settings.KAFKA = {"bootstrap.servers": values.get("KAFKA_BOOTSTRAP_SERVERS", "")}
    settings.OIDC_PROVIDERS = ()
    settings.TRUSTED_PROXIES = address.trusted(settings.ANNALS)


def production(settings: Settings) -> None:
    given(
        settings,
        DATABASE_URL="postgresql://owner@db.bank.example/annals",
        KAFKA_BOOTSTRAP_SERVERS=NOBODY,
        ANNALS_TRUSTED_PROXIES="10.1.2.3",
        ANNALS_SECRET_KEY="0123456789abcdef" * 3,
        ANNALS_ALLOWED_HOSTS="annals.bank.example",
        ANNALS_HTTPS="true",
        ANNALS_METRICS_TOKEN="t" * 32,
    )


@pytest.fixture
def embedded_home() -> Iterator[Path]:
    """Not tmp_path, which root closes to the user of PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="annals-deploy-") as folder:
        yield Path(folder)
        embedded.database_server(folder).stop("immediate")


def numbers(**asked: Any) -> list[str]:
    return [str(found.id).removeprefix("annals.") for found in first_hour(**asked)]


def test_each_setting_that_is_missing_in_order(settings: Settings) -> None:
    given(settings)
    assert numbers() == [*NOTHING_SET, "I100"]


def test_a_key_that_can_be_guessed_and_every_host(settings: Settings) -> None:
    production(settings)
    settings.ANNALS = msgspec.structs.replace(
        settings.ANNALS, secret_key="x" * 50, allowed_hosts=("*",)
    )
    assert numbers() == ["W103", "W104", "I100"]


def test_clients_behind_proxies_that_are_not_named_and_among_those_that_are(
    settings: Settings,
) -> None:
    production(settings)
    settings.TRUSTED_PROXIES = ()
    assert numbers() == ["W107", "I100"]
    wide = env.read({"ANNALS_TRUSTED_PROXIES": "10.1.2.3,10.0.0.0/8"})
    settings.TRUSTED_PROXIES = address.trusted(wide)
    assert numbers() == ["W108", "I100"]


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, ["W100", *NOTHING_SET]),
        (
            {"ANNALS_DEMO": "true", "DATABASE_URL": "postgresql://u@127.0.0.1:1/x"},
            ["W100", *NOTHING_SET[1:], "I100"],
        ),
    ],
)
def test_the_command_says_it_too(
    variables: dict[str, str], expected: list[str], embedded_home: Path
) -> None:
    """Without a DATABASE_URL the command starts the demo's PostgreSQL, and names that."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANNALS_") and name not in env.EXACT
    }
    done = subprocess.run(
        [sys.executable, ROOT / "annals" / "__main__.py", "check", "--deploy"],
        env=plain | {"ANNALS_HOME": str(embedded_home)} | variables,
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0
    assert re.findall(r"annals\.([WI]1\d\d)", done.stderr) == expected


@pytest.mark.django_db
def test_a_new_database_then_one_that_is_prepared(settings: Settings) -> None:
    """Each warning disappears by doing what its hint says."""
    production(settings)
    before = numbers(databases=["default"])
    assert [each for each in before if each not in ("W114", "W121")] == [
        *("W112", "W113", "W116", "W118", "W119", "W119", "W119")
    ]

    call_command("grants", apply=True)
    with connection.cursor() as cursor:
        for role in ("web", "consumer"):
            cursor.execute(f"CREATE ROLE first_hour_{role} LOGIN")
            cursor.execute(f"GRANT annals_{role} TO first_hour_{role}")
    User.objects.create_superuser("first")
    now = clock.now()
    maintain_ran(now)
    gaps_ran(now)
    JobRun.objects.create(name=JobRun.RETRY, started_at=now, outcome="")
    after = numbers(databases=["default"])
    assert [each for each in after if each not in ("W114", "W121")] == ["W116"]

    GapRun.objects.update(started_at=now - timedelta(days=1))
    [late] = [each for each in first_hour(databases=["default"]) if each.id == "annals.W119"]
    assert "`annals gaps` has not run in time" in late.msg


@pytest.mark.django_db
def test_tables_that_are_not_there_end_the_list(settings: Settings) -> None:
    production(settings)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'history'")
    assert numbers(databases=["default"]) == ["W111"]


@pytest.mark.django_db
def test_each_says_what_to_do(settings: Settings) -> None:
    given(settings, KAFKA_BOOTSTRAP_SERVERS=NOBODY)
    for found in first_hour(databases=["default"]):
        assert "docs/first-hour.md" in str(found.hint)
        assert "postgresql://owner" not in f"{found.msg}"


@pytest.mark.django_db
def test_the_name_of_the_host_leads_to_the_screens(client: Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
