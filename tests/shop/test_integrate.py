"""docs/integrate.md: its commands are run in their order, its code is that of the example shop."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from annals.embedded import logins
from annals.embedded.broker import Broker
from annals.embedded.postgres import Postgres
from scripts.pages import ROOT
from tests.docs_blocks import pages
from tests.kafka import brokers
from tests.kafka.fixtures import embedded
from tests.outbox import in_place
from tests.processes import own_database, server
from tests.shop.conftest import ENVIRONMENT, SHOP

__all__ = ["embedded", "server"]

PAGE = "docs/integrate.md"
TEXT = (ROOT / PAGE).read_text()
ADDED = re.compile(r"outbox|OUTBOX|KAFKA|TOPICS|\bRecorded\b|recorded_as|PartOf|OneVersion")
CHANGED = re.compile(r"class \w+\((Recorded|OneVersion, ModelAdmin)\):")
ANNALS = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -W ignore -m annals "$@"\n'


# Its first line says where a block belongs.
BLOCKS = [each for each in pages.BLOCKS if each.page == PAGE and each.first.startswith("# ")]


@pytest.fixture
def places(
    embedded: Broker, server: Postgres, tmp_path: Path
) -> Iterator[dict[str, dict[str, str]]]:
    """By `service` and `Annals`, the environment of its commands: databases of their own, one
    broker."""
    brokers.create(embedded, ["shop.order", "shop.product"])
    wrapper = tmp_path / "annals"
    wrapper.write_text(ANNALS)
    wrapper.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    servers = str(embedded.client()["bootstrap.servers"])
    shared = {**os.environ, "PATH": path, "KAFKA_BOOTSTRAP_SERVERS": servers}
    with in_place.database("shop") as shop, own_database(server) as annals:
        of_server = os.environ["DATABASE_URL"].rpartition("/")[0]
        yield {
            "service": {
                **shared,
                "DATABASE_URL": f"{of_server}/{shop}",
                "SHOP_SECRET_KEY": ENVIRONMENT["SHOP_SECRET_KEY"],
                "DJANGO_SETTINGS_MODULE": "shop.settings",
                "PYTHONPATH": str(ROOT),
            },
            "Annals": {
                **shared,
                "DATABASE_URL": annals.url_of(logins.OWNER),
                "ANNALS_RETENTION_DAYS": "2",  # few days to make, and none expires at midnight
                "ANNALS_KAFKA_SESSION_TIMEOUT_MS": "2000",
                "ANNALS_KAFKA_HEARTBEAT_INTERVAL_MS": "500",
            },
        }


def test_the_commands_bring_a_product_of_the_shop_into_annals(
    places: dict[str, dict[str, str]],
) -> None:
    said = ""
    for block in BLOCKS:
        where = re.match(r"# in (?:the )?(service|Annals)\b", block.first)
        if where is None:
            continue
        place = where[1]
        shell = ["python", "manage.py", "shell"] if block.language == "python" else ["sh", "-eu"]
        done = subprocess.run(
            shell,
            input=block.text,
            cwd=SHOP if place == "service" else ROOT,
            env=places[place],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        said += done.stdout + done.stderr
    assert "documents: 9\nversions: 11\n" in said
    assert "buckets no relay: 64" in said
    assert re.search(r"KETTLE-17.*stored|stored.*KETTLE-17", said, re.DOTALL)
    assert "4 added" in said
    assert "stopped: 11 read, 11 stored" in said


def test_the_code_is_that_of_the_shop() -> None:
    parts = [each.text.removeprefix("# ").partition("\n") for each in BLOCKS]
    shown = {name: text for name, _, text in parts if (SHOP / name).is_file()}
    assert len(shown) == 3
    for name, text in shown.items():
        code = {line.strip() for line in (SHOP / name).read_text().splitlines()}
        assert [line for line in text.splitlines() if line.strip() not in code] == []
    every = "".join(shown.values()).splitlines()
    assert sum(bool(ADDED.search(line) and "class " not in line) for line in every) == 10
    assert sum(bool(CHANGED.match(line)) for line in every) == 4
    assert "These are ten lines and four base classes." in TEXT


def test_the_declaration_is_that_of_the_shop() -> None:
    [text] = re.findall(r"^```toml\n(\[.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert text in (SHOP / "annals-kinds.toml").read_text()


def test_the_unit_runs_the_relay() -> None:
    [block] = [each for each in BLOCKS if each.language == "ini"]
    unit = ConfigParser()
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(block.text)
    assert unit["Service"]["ExecStart"].endswith("python manage.py outbox relay")
    assert {"Unit", "Service", "Install"} == set(unit.sections())
