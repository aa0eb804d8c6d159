"""The commands of docs/integrate.md work in order, and examples/shop has the code of that page."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from annals.embedded import logins
from annals.embedded.broker import EmbeddedBroker
from annals.embedded.postgres import EmbeddedPostgres
from scripts.pages import ROOT
from tests.docs_blocks import pages
from tests.kafka import brokers
from tests.kafka.fixtures import embedded
from tests.outbox import service_in_process
from tests.processes import create_own_database, server
from tests.shop.conftest import ENVIRONMENT, SHOP

__all__ = ["embedded", "server"]

PAGE = "docs/integrate.md"
TEXT = (ROOT / PAGE).read_text()
ADDED = re.compile(r"outbox|OUTBOX|KAFKA|TOPICS|\bRecorded\b|recorded_as|PartOf|OneVersion")
CHANGED = re.compile(r"class \w+\((Recorded|OneVersion, ModelAdmin)\):")
ANNALS = f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -P -W ignore -m annals "$@"\n'


# The blocks whose first line says where they belong.
BLOCKS = [
    block for block in pages.BLOCKS if block.page == PAGE and block.first_line.startswith("# ")
]


@pytest.fixture
def environments(
    embedded: EmbeddedBroker, server: EmbeddedPostgres, tmp_path: Path
) -> Iterator[dict[str, dict[str, str]]]:
    """The environment variables of the commands, with the keys `service` and `Annals`.

    The service and Annals have different databases and share one broker.
    """
    brokers.create_topics(embedded, ["shop.order", "shop.product"])
    wrapper = tmp_path / "annals"
    wrapper.write_text(ANNALS)
    wrapper.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    servers = str(embedded.make_client_config()["bootstrap.servers"])
    shared = {**os.environ, "PATH": path, "KAFKA_BOOTSTRAP_SERVERS": servers}
    with service_in_process.create_database("shop") as shop, create_own_database(server) as annals:
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
                "DATABASE_URL": annals.build_url(logins.OWNER),
                # Few, because creating days takes time. No day of the test expires at midnight.
                "ANNALS_RETENTION_DAYS": "2",
                "ANNALS_KAFKA_SESSION_TIMEOUT_MS": "2000",
                "ANNALS_KAFKA_HEARTBEAT_INTERVAL_MS": "500",
            },
        }


def test_commands_of_the_guide_bring_changes_of_a_product_into_annals(
    environments: dict[str, dict[str, str]],
) -> None:
    output = ""
    for block in BLOCKS:
        place_match = re.match(r"# in (?:the )?(service|Annals)\b", block.first_line)
        if place_match is None:
            continue
        place = place_match[1]
        shell = ["python", "manage.py", "shell"] if block.language == "python" else ["sh", "-eu"]
        finished = subprocess.run(
            shell,
            input=block.text,
            cwd=SHOP if place == "service" else ROOT,
            env=environments[place],
            capture_output=True,
            text=True,
        )
        assert finished.returncode == 0, f"{block.text}\n{finished.stdout}\n{finished.stderr}"
        output += finished.stdout + finished.stderr
    assert "documents: 9\nversions: 11\n" in output
    assert "buckets no relay: 64" in output
    assert re.search(r"KETTLE-17.*stored|stored.*KETTLE-17", output, re.DOTALL)
    assert "4 added" in output
    assert "stopped: 11 read, 11 stored" in output


def test_code_in_the_guide_equals_the_code_of_the_shop() -> None:
    parts = [block.text.removeprefix("# ").partition("\n") for block in BLOCKS]
    code_by_file = {name: text for name, _, text in parts if (SHOP / name).is_file()}
    assert len(code_by_file) == 3
    for name, text in code_by_file.items():
        code = {line.strip() for line in (SHOP / name).read_text().splitlines()}
        assert [line for line in text.splitlines() if line.strip() not in code] == []
    all_lines = "".join(code_by_file.values()).splitlines()
    assert sum(bool(ADDED.search(line) and "class " not in line) for line in all_lines) == 10
    assert sum(bool(CHANGED.match(line)) for line in all_lines) == 4
    assert "These are ten lines and four base classes." in TEXT


def test_kind_declaration_in_the_guide_equals_the_declaration_of_the_shop() -> None:
    [text] = re.findall(r"^```toml\n(\[.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert text in (SHOP / "annals-kinds.toml").read_text()


def test_systemd_unit_in_the_guide_runs_the_relay() -> None:
    [block] = [block for block in BLOCKS if block.language == "ini"]
    unit = ConfigParser()
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(block.text)
    assert unit["Service"]["ExecStart"].endswith("python manage.py outbox relay")
    assert {"Unit", "Service", "Install"} == set(unit.sections())
