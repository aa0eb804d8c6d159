"""`annals check --deploy` lists missing settings and steps in the order of the installation."""

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

from annals import embedded
from annals.access import client_address
from annals.configuration import env
from annals.operations.deploy_checks import check_first_hour
from history.common import clock
from history.models import GapRun
from ingest.kafka import source
from ingest.models import JobRun
from tests.db.ingest_rows import record_gap_run, record_maintain_run

ROOT = Path(__file__).resolve().parents[2]
NOTHING_SET = ["W101", "W102", "W103", "W104", "W105", "W106"]
# A broker address at which no process listens.
UNREACHABLE = "127.0.0.1:9"


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up after 0.2 seconds: no broker answers in these tests."""
    monkeypatch.setattr(source, "TIMEOUT_SECONDS", 0.2)


def set_settings(settings: Settings, **values: str) -> None:
    """Set the settings of Annals as if the environment variables were `values`."""
    settings.ANNALS = env.read_settings(values)
    settings.KAFKA = {"bootstrap.servers": values.get("KAFKA_BOOTSTRAP_SERVERS", "")}
    settings.OIDC_PROVIDERS = ()
    settings.TRUSTED_PROXIES = client_address.load_trusted_proxies(settings.ANNALS)


def use_production_settings(settings: Settings) -> None:
    set_settings(
        settings,
        DATABASE_URL="postgresql://owner@db.bank.example/annals",
        KAFKA_BOOTSTRAP_SERVERS=UNREACHABLE,
        ANNALS_TRUSTED_PROXIES="10.1.2.3",
        ANNALS_SECRET_KEY="0123456789abcdef" * 3,
        ANNALS_ALLOWED_HOSTS="annals.bank.example",
        ANNALS_HTTPS="true",
        ANNALS_METRICS_TOKEN="t" * 32,
    )


@pytest.fixture
def embedded_home() -> Iterator[Path]:
    """Yield a folder that the operating system user who runs the PostgreSQL server can open.

    If root runs the tests, only root can open tmp_path.
    """
    with tempfile.TemporaryDirectory(prefix="annals-deploy-") as folder:
        yield Path(folder)
        embedded.get_database_server(folder).stop("immediate")


def list_warning_ids(**options: Any) -> list[str]:
    return [str(actual.id).removeprefix("annals.") for actual in check_first_hour(**options)]


def test_missing_settings_are_listed_in_order_of_their_check_numbers(settings: Settings) -> None:
    set_settings(settings)
    assert list_warning_ids() == [*NOTHING_SET, "I100"]


def test_weak_key_and_open_hosts_are_listed(settings: Settings) -> None:
    use_production_settings(settings)
    settings.ANNALS = msgspec.structs.replace(
        settings.ANNALS, secret_key="x" * 50, allowed_hosts=("*",)
    )
    assert list_warning_ids() == ["W103", "W104", "I100"]


def test_unset_or_too_wide_proxy_networks_are_listed(
    settings: Settings,
) -> None:
    use_production_settings(settings)
    settings.TRUSTED_PROXIES = ()
    assert list_warning_ids() == ["W107", "I100"]
    wide = env.read_settings({"ANNALS_TRUSTED_PROXIES": "10.1.2.3,10.0.0.0/8"})
    settings.TRUSTED_PROXIES = client_address.load_trusted_proxies(wide)
    assert list_warning_ids() == ["W108", "I100"]


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
def test_check_command_prints_warnings(
    variables: dict[str, str], expected: list[str], embedded_home: Path
) -> None:
    """Without DATABASE_URL the command starts the demo's PostgreSQL, and warns about it."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANNALS_") and name not in env.UNPREFIXED_NAMES
    }
    result = subprocess.run(
        [sys.executable, ROOT / "annals" / "__main__.py", "check", "--deploy"],
        env=plain | {"ANNALS_HOME": str(embedded_home)} | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0
    assert re.findall(r"annals\.([WI]1\d\d)", result.stderr) == expected


@pytest.mark.django_db
def test_warnings_of_new_database_disappear_when_their_hints_are_followed(
    settings: Settings,
) -> None:
    use_production_settings(settings)
    before = list_warning_ids(databases=["default"])
    assert [item for item in before if item not in ("W114", "W121")] == [
        "W112",
        "W113",
        "W116",
        "W118",
        "W119",
        "W119",
        "W119",
    ]

    call_command("grants", apply=True)
    with connection.cursor() as cursor:
        for role in ("web", "consumer"):
            cursor.execute(f"CREATE ROLE first_hour_{role} LOGIN")
            cursor.execute(f"GRANT annals_{role} TO first_hour_{role}")
    User.objects.create_superuser("first")
    now = clock.now()
    record_maintain_run(now)
    record_gap_run(now)
    JobRun.objects.create(name=JobRun.RETRY, started_at=now, outcome="")
    after = list_warning_ids(databases=["default"])
    assert [entry for entry in after if entry not in ("W114", "W121")] == ["W116"]

    GapRun.objects.update(started_at=now - timedelta(days=1))
    [late] = [
        element
        for element in check_first_hour(databases=["default"])
        if element.id == "annals.W119"
    ]
    assert "`annals gaps` has not run in time" in late.msg


@pytest.mark.django_db
def test_only_missing_tables_are_reported_when_migrations_were_not_applied(
    settings: Settings,
) -> None:
    use_production_settings(settings)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'history'")
    assert list_warning_ids(databases=["default"]) == ["W111"]


@pytest.mark.django_db
def test_each_warning_has_hint(settings: Settings) -> None:
    set_settings(settings, KAFKA_BOOTSTRAP_SERVERS=UNREACHABLE)
    for actual in check_first_hour(databases=["default"]):
        assert "docs/first-hour.md" in str(actual.hint)
        assert "postgresql://owner" not in f"{actual.msg}"


@pytest.mark.django_db
def test_root_address_redirects_to_screens(client: Client) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
