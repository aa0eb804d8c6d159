"""Two builds of a wheel are equal byte for byte, and a wheel has all files of its packages.

Annals runs from its wheel, without the files of the repository.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import urlsplit
from zipfile import ZipFile

import psycopg
import pytest

from annals import __version__
from scripts import wheels
from tests.consuming import ROOT
from tests.installed import EMBEDDED, InstalledAnnals, use_installed

pytestmark = pytest.mark.system
EPOCH = "1763800000"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        yield wheels.build_wheel("annals", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def annals_from_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> InstalledAnnals:
    """Annals installed from the wheel, with the packages of the Python that runs the tests.

    The packages of the embedded servers are left out, as in production.
    """
    annals = InstalledAnnals(tmp_path_factory.mktemp("installed"))
    annals.link_packages(leave_out=EMBEDDED)
    annals.install("--no-deps", "--no-index", wheel)
    return annals


def test_wheels_built_in_different_environments_are_equal_byte_for_byte(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builds differ in order, modes and dates of the files, in umask, time zone and folder."""
    clone = tmp_path / "other clone"
    for name in reversed(wheels.SOURCES["annals"]):
        (clone / name).parent.mkdir(exist_ok=True)
        copy = ["cp", "--recursive", "--dereference", "--no-preserve=all"]
        subprocess.run([*copy, ROOT / name, clone / name], check=True)
    (clone / "annals" / "__init__.py").chmod(0o700)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    earlier_mask = os.umask(0o077)
    try:
        second_wheel: Path = wheels.build_wheel("annals", tmp_path / "dist", clone)
    finally:
        os.umask(earlier_mask)
    assert second_wheel.name == wheel.name
    assert second_wheel.read_bytes() == wheel.read_bytes()


def test_wheel_of_annals_has_exactly_the_files_of_its_packages(wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    left_out = ("__pycache__", ".po")
    assert names - {name for name in names if name.endswith(".po")} == {
        str(path.relative_to(ROOT))
        for package in ("annals", "history", "ingest")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and not any(part in str(path) for part in left_out)
    }


def test_wheel_of_the_outbox_has_exactly_the_files_of_its_app(tmp_path: Path) -> None:
    with ZipFile(wheels.build_wheel("annals-outbox", tmp_path)) as opened:
        names = opened.namelist()
        [metadata] = (name for name in names if name.endswith("/METADATA"))
        text = opened.read(metadata).decode()
    requirements = re.findall(r"^Requires-Dist: ([\w-]+)", text, re.MULTILINE)
    assert requirements == ["django", "psycopg", "confluent-kafka"]
    assert {name for name in names if ".dist-info/" not in name} == {
        str(path.relative_to(ROOT))
        for path in (ROOT / "outbox").rglob("*")
        if path.suffix in {".py", ".html", ".po", ".mo", ".typed"} and "build" not in path.parts
    }


def test_wheel_has_version_license_and_requirements(wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        folder = f"annals-{__version__}.dist-info"
        about = HeaderParser().parsestr(opened.read(f"{folder}/METADATA").decode())
        programs = opened.read(f"{folder}/entry_points.txt").decode()
    assert about["Version"] == __version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    embedded = [
        requirement
        for requirement in about.get_all("Requires-Dist", [])
        if "extra ==" in requirement
    ]
    assert {requirement.partition("<")[0] for requirement in embedded} == set(EMBEDDED)
    assert "annals = annals.management.command_line:main" in programs


@pytest.mark.parametrize(
    "words, server, setting",
    [
        ("migrate", "PostgreSQL", "DATABASE_URL"),
        ("simulate --seconds 1", "broker", "KAFKA_BOOTSTRAP_SERVERS"),
    ],
)
def test_command_reports_missing_setting_when_the_embedded_extra_is_not_installed(
    annals_from_wheel: InstalledAnnals, words: str, server: str, setting: str
) -> None:
    finished = annals_from_wheel.run_command(*words.split())
    assert finished.returncode == 1
    assert finished.stderr.startswith(
        f"annals: the embedded {server} is not installed. Set {setting}"
    )
    assert "pip install 'annals[embedded]'" in finished.stderr
    assert finished.stderr.count("\n") == 1


def test_annals_installed_from_wheel_runs_in_an_empty_folder(
    annals_from_wheel: InstalledAnnals,
) -> None:
    """The test runs `check`, `migrate` and `partitions maintain`, starts the production web server
    and opens a timeline."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as plain:
        plain.execute("DROP DATABASE IF EXISTS from_a_wheel")
        plain.execute("CREATE DATABASE from_a_wheel")
        try:
            use_installed(annals_from_wheel, urlsplit(url)._replace(path="/from_a_wheel").geturl())
        finally:
            plain.execute("DROP DATABASE from_a_wheel WITH (FORCE)")
