"""What can be said about docker/ without a container engine (none is at hand where this runs)."""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from annals import env

DOCKER = Path(__file__).parents[2] / "docker"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)\}")


def load(name: str) -> Any:
    return yaml.safe_load((DOCKER / name).read_text())


def environment(**given: str) -> dict[str, str]:
    """The environment of the web in compose, with a docker/.env that is filled in as it says."""
    filled = {
        name: secrets.token_hex(32)
        for name in re.findall(r"^(\w+)=$", (DOCKER / "example.env").read_text(), re.MULTILINE)
    } | given
    named = load("compose.yaml")["services"]["web"]["environment"]
    return {
        name: VARIABLE.sub(lambda found: filled.get(found[1], found[2] or ""), str(value))
        for name, value in named.items()
    }


def check(settings: dict[str, str]) -> tuple[int, str]:
    """The exit code of the check, and what it prints."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=DOCKER.parent,
        env={**clean, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


def test_compose_sets_only_settings_that_exist() -> None:
    env.read(environment())
    asked = set(re.findall(r"\$\{(\w+):\?", (DOCKER / "compose.yaml").read_text()))
    given = set(re.findall(r"^(\w+)=", (DOCKER / "example.env").read_text(), re.MULTILINE))
    assert asked == given


def test_compose_mounts_only_what_is_there() -> None:
    mounts = [
        mount.split(":")[0]
        for service in load("compose.yaml")["services"].values()
        for mount in service.get("volumes", [])
    ]
    folders = [mount for mount in mounts if mount.startswith(".")]
    assert folders
    assert [folder for folder in folders if not (DOCKER / folder).is_dir()] == []


def test_the_image_is_made_of_what_is_there_and_runs_as_nobody_special() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert copied
    assert [path for path in copied if not (DOCKER.parent / path).exists()] == []
    assert "useradd --uid 10001 " in text
    assert text.index("\nUSER 10001\n") < text.index("CMD ")


def test_django_has_nothing_to_say_of_production_behind_https() -> None:
    settings = environment(ANNALS_HTTPS="true", ANNALS_ALLOWED_HOSTS="annals.bank.example")
    code, said = check(settings)
    assert (code, said) == (0, "System check identified no issues (1 silenced).\n")


def test_without_https_it_names_what_is_missing() -> None:
    code, said = check(environment())
    assert code == 1
    assert set(re.findall(r"\(security\.(W\d+)\)", said)) == {"W004", "W008", "W012", "W016"}
