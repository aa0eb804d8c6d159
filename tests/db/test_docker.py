"""Checks of the files in docker/ that need no container engine."""

import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from annals.configuration import env

DOCKER = Path(__file__).parents[2] / "docker"
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)\}")


def load_yaml(name: str) -> Any:
    return yaml.safe_load((DOCKER / name).read_text())


def make_environment(**variables: str) -> dict[str, str]:
    """Return the environment variables that docker/compose.yaml gives to the service `web`.

    Args:
        variables: Values for docker/.env. Secrets that are not among them get random values.
    """
    filled = {
        name: secrets.token_hex(32)
        for name in re.findall(r"^(\w+)=$", (DOCKER / "example.env").read_text(), re.MULTILINE)
    } | variables
    environment = load_yaml("compose.yaml")["services"]["web"]["environment"]
    actual = {
        name: VARIABLE.sub(lambda match: filled.get(match[1], match[2] or ""), str(value))
        for name, value in environment.items()
    }
    # tests/access/test_keycloak.py reads this file. Its secret exists only in the container.
    assert actual.pop("ANNALS_OIDC_FILE") == "/etc/annals/providers.toml"
    assert "./keycloak:/etc/annals:ro" in load_yaml("compose.yaml")["services"]["web"]["volumes"]
    assert (DOCKER / "keycloak" / "providers.toml").exists()
    return actual


def run_check(settings: dict[str, str]) -> tuple[int, str]:
    """Run `check --deploy` with these environment variables, and return exit code and output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    result = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=DOCKER.parent,
        env={**clean, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return result.returncode, result.stdout


def test_compose_sets_only_settings_that_exist() -> None:
    env.read_settings(make_environment())
    requested = set(re.findall(r"\$\{(\w+):\?", (DOCKER / "compose.yaml").read_text()))
    values = set(re.findall(r"^(\w+)=", (DOCKER / "example.env").read_text(), re.MULTILINE))
    assert requested == values - {"COMPOSE_PROFILES"}


def test_make_env_script_creates_distinct_secrets_and_keeps_existing_file(
    tmp_path: Path,
) -> None:
    for name in ("make_env", "example.env"):
        shutil.copy(DOCKER / name, tmp_path)
    subprocess.run([tmp_path / "make_env"], check=True, capture_output=True)
    created = (tmp_path / ".env").read_text()
    values = re.findall(r"^(?!#)\w+=(.*)$", created, re.MULTILINE)
    assert "" not in values
    assert len(values) == len(set(values))
    assert (tmp_path / ".env").stat().st_mode & 0o077 == 0
    assert subprocess.run([tmp_path / "make_env"], capture_output=True).returncode == 1
    assert (tmp_path / ".env").read_text() == created


def test_containers_are_read_only_except_named_folders() -> None:
    """Keycloak of the demo can write everywhere, because Keycloak builds files when it starts."""
    services = load_yaml("compose.yaml")["services"]
    open_ones = {name for name, service in services.items() if not service.get("read_only")}
    assert open_ones == {"postgres", "kafka", "keycloak", "prometheus", "grafana"}
    local_rows = {name for name, service in services.items() if service["image"] == "annals"}
    assert local_rows == {"migrate", "web", "consume", "retry", "maintain", "verify", "simulate"}
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name


def test_compose_mounts_only_existing_files() -> None:
    mounts = [
        mount.split(":")[0]
        for service in load_yaml("compose.yaml")["services"].values()
        for mount in service.get("volumes", [])
    ]
    folders = [mount for mount in mounts if mount.startswith(".")]
    assert folders
    assert [folder for folder in folders if not (DOCKER / folder).is_dir()] == []


def test_dockerfile_copies_only_existing_files_and_image_runs_without_root() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    copied = [path for line in lines for path in line.split()]
    assert copied
    assert [path for path in copied if not (DOCKER.parent / path).exists()] == []
    assert "useradd --uid 10001 " in text
    assert text.index("\nUSER 10001\n") < text.index("CMD ")


def test_django_deploy_check_reports_nothing_when_https_is_set() -> None:
    settings = make_environment(ANNALS_HTTPS="true", ANNALS_ALLOWED_HOSTS="annals.bank.example")
    code, text = run_check(settings)
    assert code == 0
    # I100 says that the check did not connect to the servers of compose.
    assert re.findall(r"\((\w+\.[A-Z]\d+)\)", text) == ["annals.I100"]
