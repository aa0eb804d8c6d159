"""Settings: right values are typed, wrong ones stop the start with a sentence that names them."""

import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annals import env, librdkafka, start


def test_an_empty_environment_gives_the_defaults() -> None:
    assert env.read({}) == env.Settings()


def test_every_kind_of_value_is_converted() -> None:
    settings = env.read(
        {
            "DATABASE_URL": "postgresql://a@b/c",
            "ANNALS_RETENTION_DAYS": " 30 ",
            "ANNALS_DEMO": "true",
            "ANNALS_HOME": "/srv/annals",
            "ANNALS_ALLOWED_HOSTS": "annals.example, 10.0.0.1 ,",
        }
    )
    assert settings.database_url == "postgresql://a@b/c"
    assert settings.retention_days == 30
    assert settings.demo is True
    assert settings.home == Path("/srv/annals")
    assert settings.allowed_hosts == ("annals.example", "10.0.0.1")


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("ANNALS_RETENTION_DAYS", "ninety", "a whole number. "),
        ("ANNALS_RETENTION_DAYS", "0", "a whole number of at least 1. "),
        ("ANNALS_RETENTION_DAYS", "3651", "a whole number of at most 3650. "),
        ("ANNALS_SECRET_KEY", "short", "at least 32 characters long. "),
        ("ANNALS_DEMO", "perhaps", "true or false. "),
        ("ANNALS_LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING, ERROR. "),
        ("ANNALS_METRICS_TOKEN", "short", "at least 16 characters long. "),
        ("ANNALS_MAX_BAD_RATIO", "0", "a number above 0.0. "),
        ("ANNALS_FALLBACK_UNTIL", "soon", "a day, as 2026-12-31. "),
        ("ANNALS_ARCHIVE_URL", "ftp://x", "s3:// or gs://. "),
        ("ANNALS_NEED_TO_KNOW", "rule", "as package.module.function. "),
        ("ANNALS_ALLOWED_HOSTS", "a,https://annals.bank.example", "without https:// and port"),
        ("ANNALS_ALLOWED_HOSTS", "annals.bank.example:8000", "without https:// and port"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, reason: str) -> None:
    with pytest.raises(env.SettingError) as caught:
        env.read({name: value})
    assert str(caught.value).startswith(f"{name} is wrong: ")
    assert reason in str(caught.value)


def complaint(name: str, value: str) -> str:
    try:
        env.read({name: value})
    except env.SettingError as error:
        return str(error)
    return ""


def test_no_wrong_value_is_explained_to_programmers() -> None:
    said = [
        complaint(env.variable(field), value)
        for field in get_type_hints(env.Settings)
        for value in ("wrong!", "-1", "99999999999")
    ]
    assert len(list(filter(None, said))) > 60
    programmers = re.compile("regex|expected|`|another form|[<>]=")
    assert [each for each in said if programmers.search(each)] == []


@pytest.mark.parametrize("host", ["annals.bank.example", ".bank.example", "*", "10.0.0.1", "[::1]"])
def test_a_host_as_browsers_send_it_is_valid(host: str) -> None:
    assert env.read({"ANNALS_ALLOWED_HOSTS": host}).allowed_hosts == (host,)


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("ANNALS_TRUSTED_PROXIES", "0.0.0.0/0", "everybody would be trusted"),
        ("ANNALS_ENVELOPES_FILE", "/nonexist", "there is no file /nonexist"),
    ],
)
def test_the_start_refuses(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=said):
        start.checked_settings(["migrate"])


def test_an_unknown_name_is_refused_and_named() -> None:
    with pytest.raises(env.SettingError, match="ANNALS_RETENTION_DAY is not a setting"):
        env.read({"ANNALS_RETENTION_DAY": "30"})


@pytest.mark.parametrize("name", ["ANNALS_KAFKA_SASL_MECHANISM", "ANNALS_TEST_ALL", "PATH"])
def test_names_that_are_read_elsewhere_pass(name: str) -> None:
    assert env.read({name: "x"}) == env.Settings()


def test_an_empty_value_counts_as_unset() -> None:
    assert env.read({"ANNALS_RETENTION_DAYS": "", "DATABASE_URL": " "}) == env.Settings()


@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_no_text_breaks_more_than_a_setting(text: str) -> None:
    for name in ("ANNALS_RETENTION_DAYS", "ANNALS_DEMO", "ANNALS_LOG_LEVEL", "ANNALS_SECRET_KEY"):
        with suppress(env.SettingError):
            env.read({name: text})


def test_librdkafka_names_are_made_of_ours() -> None:
    assert librdkafka.given(
        {"ANNALS_KAFKA_SASL_MECHANISM": "PLAIN", "ANNALS_KAFKA_FETCH_MAX_BYTES": "", "OTHER": "x"}
    ) == {"sasl.mechanism": "PLAIN"}


def test_a_secret_key_is_made_once_and_readable_to_nobody_else(tmp_path: Path) -> None:
    settings = env.Settings(home=tmp_path / "new")
    first = env.secret_key(settings)
    assert len(first) >= 32
    assert env.secret_key(settings) == first
    assert stat.S_IMODE((tmp_path / "new" / "secret_key").stat().st_mode) == 0o600


def test_an_empty_secret_key_that_a_full_disk_left_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "secret_key").touch()
    settings = env.Settings(home=tmp_path)
    made = env.secret_key(settings)
    assert len(made) >= 32
    assert env.secret_key(settings) == made
    assert [each.name for each in tmp_path.iterdir()] == ["secret_key"]


def test_a_full_disk_leaves_no_secret_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = env.Settings(home=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda *_: Path("/dev/full").open("w"))  # noqa: SIM115
        with pytest.raises(env.SettingError, match="no space is left"):
            env.secret_key(settings)
    assert not (tmp_path / "secret_key").exists()
    assert len(env.secret_key(settings)) >= 32


def test_the_folder_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as error:
        Path.cwd()
    said = str(env.unusable_home(error.value))
    assert "the folder in which this process was started is gone. Let it name" in said


def test_processes_that_start_at_once_have_one_secret_key(tmp_path: Path) -> None:
    settings = env.Settings(home=tmp_path / "new")
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: env.secret_key(settings), range(8)))) == 1


def test_a_given_secret_key_is_taken_and_none_is_written(tmp_path: Path) -> None:
    given_key = "k" * 32
    assert env.secret_key(env.Settings(home=tmp_path, secret_key=given_key)) == given_key
    assert list(tmp_path.iterdir()) == []


def test_the_start_stops_with_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANNALS_RETENTION_DAYS", "many")
    with pytest.raises(SystemExit) as caught:
        start.prepare(["migrate"])
    assert str(caught.value).startswith("annals: ANNALS_RETENTION_DAYS is wrong: ")


@pytest.mark.parametrize("name", sorted(librdkafka.OURS))
def test_what_the_ledger_depends_on_cannot_be_set(name: str, tmp_path: Path) -> None:
    variable = "ANNALS_KAFKA_" + name.upper().replace(".", "_")
    with pytest.raises(env.SettingError, match=f"^{re.escape(name)} cannot be set .*{variable}"):
        librdkafka.given({variable: "cooperative-sticky"})
    file = tmp_path / "librdkafka.properties"
    file.write_text(f"{name}=read_uncommitted\n")
    with pytest.raises(env.SettingError, match=f"^{re.escape(name)} cannot be set "):
        librdkafka.given({}, file)


def test_such_a_setting_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANNALS_KAFKA_ISOLATION_LEVEL", "read_uncommitted")
    with pytest.raises(SystemExit, match=r"annals: isolation\.level cannot be set"):
        start.checked_settings()


OLD = {"ANNALS_FALLBACK_URL": "https://old.example", "ANNALS_FALLBACK_UNTIL": "2026-12-31"}


def test_the_old_service_is_read() -> None:
    settings = env.read({**OLD, "ANNALS_FALLBACK_SECONDS": "0.5"})
    assert settings.fallback_url == "https://old.example"
    assert settings.fallback_until == date(2026, 12, 31)
    assert settings.fallback_seconds == 0.5


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("ANNALS_FALLBACK_URL", "http://old.example", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "https://a:b@old.example", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "https://old.example/?x=1", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "https://old.example:99999", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "https://[", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "old.example", "https://HOST"),
        ("ANNALS_FALLBACK_UNTIL", "", "is missing"),
        ("ANNALS_FALLBACK_UNTIL", "tomorrow", "is wrong"),
        ("ANNALS_FALLBACK_SECONDS", "0", "a number of at least 0.1. "),
        (
            "ANNALS_FALLBACK_TOKEN_FILE",
            "/nowhere/token",
            "there is no file or folder /nowhere/token",
        ),
        ("ANNALS_FALLBACK_CA_FILE", "/dev/null", "is empty"),
    ],
)
def test_an_old_service_that_cannot_be_asked_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(env.SettingError) as caught:
        env.read({**OLD, name: value})
    assert str(caught.value).startswith(name)
    assert reason in str(caught.value)
    assert "a:b" not in str(caught.value)
