"""ANNALS_OIDC_FILE: what it may say, and the message for a wrong one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from annals.access.oidc import providers

GOOD = {
    "name": "bank",
    "title": "Bank",
    "issuer": "https://login.bank.example/realms/staff",
    "client_id": "annals",
    "roles": {"annals-support": "support"},
}


def write(path: Path, *given: dict[str, object]) -> Path:
    file = path / "providers.json"
    file.write_text(json.dumps({"provider": given}))
    return file


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "providers.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in GOOD.items() if name != "roles"]
    toml.write_text(
        "\n".join(["[[provider]]", *lines, "[provider.roles]", 'annals-support = "support"'])
    )
    [found] = providers.read(toml)
    assert (found,) == providers.read(write(tmp_path, GOOD))
    assert (found.scope, found.api_audiences) == (providers.SCOPE, ("annals",))


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"name": "Bank 1"}, "lower case letters"),
        ({"issuer": "http://login.bank.example"}, "must begin with https://"),
        ({"issuer": "login.bank.example"}, "must be a URL"),
        ({"issuer": "https://x:y@login.bank.example"}, "must be a URL"),
        ({"issuer": "https://login.bank.example/?a=1"}, "must be a URL"),
        ({"issuer": "https://login.bank.example/#a"}, "must be a URL"),
        ({"issuer": "https://["}, "must be a URL"),
        ({"issuer": "https://login.bank.example; x"}, "must be a URL"),
        ({"roles": {"boss": "root"}}, "roles gives root; the roles are"),
        ({"algorithms": ["HS256"]}, "algorithms has HS256"),
        ({"algorithms": []}, "must have 1 or more"),
        ({"client_secret_file": "/nowhere/at/all"}, "client_secret_file is not a file"),
        ({"clientid": "x"}, "clientid is no known field"),
        ({"title": None}, "must be a text, and is null"),
        ({"leeway_seconds": 4000}, "at most 300"),
        ({"client_claim": "sub", "docs_client_id": "docs"}, "client_claim must not be sub"),
    ],
    ids=str,
)
def test_a_wrong_provider_is_named(changed: dict[str, object], why: str, tmp_path: Path) -> None:
    with pytest.raises(providers.ProvidersError, match=why):
        providers.read(write(tmp_path, GOOD | changed))


def test_two_of_one_name_or_issuer(tmp_path: Path) -> None:
    other = GOOD | {"name": "other"}
    with pytest.raises(providers.ProvidersError, match="two providers have the issuer"):
        providers.read(write(tmp_path, GOOD, other))
    with pytest.raises(providers.ProvidersError, match="two providers have the name"):
        providers.read(write(tmp_path, GOOD, GOOD | {"issuer": "https://other.example"}))


@pytest.mark.parametrize("content", ["", "[[provider", "[]", '{"provider": []}'])
def test_no_providers(content: str, tmp_path: Path) -> None:
    for name in ("a.toml", "a.json"):
        (tmp_path / name).write_text(content)
        with pytest.raises(providers.ProvidersError, match=name):
            providers.read(tmp_path / name)


def test_a_wrong_file_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD | {"issuer": "ftp://x"})
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env=os.environ | {"ANNALS_OIDC_FILE": str(file), "DATABASE_URL": "postgresql:///x"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("annals: ANNALS_OIDC_FILE is wrong: ")
    assert len(done.stderr.splitlines()) == 1
