"""Settings: right values are converted, and a wrong value stops the start with a clear error."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from annals.access.oidc import providers
from annals.configuration import env
from annals.configuration.fields import Settings
from annals.web import start
from history.retention.archive.store import ArchiveError, ArchiveStore


def test_texts_of_environment_variables_are_converted_to_types_of_settings() -> None:
    settings = env.read_settings(
        {
            "DATABASE_URL": "postgresql://a@b/c",
            "ANNALS_RETENTION_DAYS": " 30 ",
            "ANNALS_DEMO": "true",
            "ANNALS_HOME": "/srv/annals",
            "ANNALS_ALLOWED_HOSTS": "annals.example, .bank.example, [::1] ,",
        }
    )
    assert settings.database_url == "postgresql://a@b/c"
    assert settings.retention_days == 30
    assert settings.demo is True
    assert settings.home == Path("/srv/annals")
    assert settings.allowed_hosts == ("annals.example", ".bank.example", "[::1]")


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("ANNALS_RETENTION_DAYS", "ninety", "a whole number. "),
        ("ANNALS_RETENTION_DAYS", "0", "a whole number >= 1. "),
        ("ANNALS_SECRET_KEY", "short", "a text of length >= 32. "),
        ("ANNALS_DEMO", "perhaps", "true or false. "),
        ("ANNALS_LOG_LEVEL", "LOUD", "DEBUG, INFO, WARNING, ERROR. "),
        ("ANNALS_MAX_BAD_RATIO", "0", "a number > 0.0. "),
        ("ANNALS_FALLBACK_UNTIL", "soon", "a day, as 2026-12-31. "),
        ("ANNALS_ARCHIVE_URL", "ftp://x", "s3:// or gs://. "),
        ("ANNALS_NEED_TO_KNOW", "rule", "as package.module.function. "),
        ("ANNALS_ALLOWED_HOSTS", "a,https://annals.bank.example", "without https:// and port"),
        ("ANNALS_ALLOWED_HOSTS", "annals.bank.example:8000", "without https:// and port"),
    ],
)
def test_error_names_setting_with_a_wrong_value(name: str, value: str, reason: str) -> None:
    with pytest.raises(env.SettingError) as caught:
        env.read_settings({name: value})
    assert str(caught.value).startswith(f"{name} is wrong: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("everybody", ["0.0.0.0/0", "0.0.0.0/1,128.0.0.0/1"])
def test_trusted_networks_that_cover_the_whole_internet_are_refused(
    everybody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANNALS_TRUSTED_PROXIES", everybody)
    with pytest.raises(SystemExit, match="everybody would be trusted"):
        start.check_settings(["migrate"])


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(env.SettingError, match="ANNALS_RETENTION_DAY is not a setting"):
        env.read_settings({"ANNALS_RETENTION_DAY": "30"})


def test_setting_with_empty_value_counts_as_unset() -> None:
    assert env.read_settings({"ANNALS_RETENTION_DAYS": "", "DATABASE_URL": " "}) == Settings()


def test_kafka_environment_variables_become_names_of_librdkafka_settings() -> None:
    assert env.read_librdkafka_settings(
        {"ANNALS_KAFKA_SASL_MECHANISM": "PLAIN", "ANNALS_KAFKA_FETCH_MAX_BYTES": "", "OTHER": "x"}
    ) == {"sasl.mechanism": "PLAIN"}


def test_secret_key_is_generated_once_in_a_file_that_only_its_owner_can_read(
    tmp_path: Path,
) -> None:
    settings = Settings(home=tmp_path / "new")
    first = env.load_secret_key(settings)
    assert len(first) >= 32
    assert env.load_secret_key(settings) == first
    assert stat.S_IMODE((tmp_path / "new" / "secret_key").stat().st_mode) == 0o600


def test_no_partial_secret_key_is_left_when_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda *_: Path("/dev/full").open("w"))  # noqa: SIM115
        with pytest.raises(env.SettingError, match="No space left"):
            env.load_secret_key(settings)
    assert not (tmp_path / "secret_key").exists()
    assert len(env.load_secret_key(settings)) >= 32


@pytest.mark.parametrize("name", sorted(env.CONSUMER_SETTINGS))
def test_librdkafka_settings_that_the_consumer_depends_on_cannot_be_set(
    name: str, tmp_path: Path
) -> None:
    variable = "ANNALS_KAFKA_" + name.upper().replace(".", "_")
    with pytest.raises(env.SettingError, match=f"^{re.escape(name)} cannot be set .*{variable}"):
        env.read_librdkafka_settings({variable: "cooperative-sticky"})
    file = tmp_path / "librdkafka.properties"
    file.write_text(f"{name}=read_uncommitted\n")
    with pytest.raises(env.SettingError, match=f"^{re.escape(name)} cannot be set "):
        env.read_librdkafka_settings({}, file)


OLD = {"ANNALS_FALLBACK_URL": "https://old.example", "ANNALS_FALLBACK_UNTIL": "2026-12-31"}


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("ANNALS_FALLBACK_URL", "http://old.example", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "https://a:b@old.example", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "https://old.example/?x=1", "https://HOST"),
        ("ANNALS_FALLBACK_URL", "old.example", "https://HOST"),
        ("ANNALS_FALLBACK_UNTIL", "", "is missing"),
        ("ANNALS_FALLBACK_UNTIL", "tomorrow", "is wrong"),
        ("ANNALS_FALLBACK_SECONDS", "0", "a number >= 0.1. "),
        (
            "ANNALS_FALLBACK_TOKEN_FILE",
            "/nowhere/token",
            "/nowhere/token: No such file or directory",
        ),
        ("ANNALS_FALLBACK_CA_FILE", "/dev/null", "is empty"),
    ],
)
def test_incomplete_settings_of_old_service_are_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(env.SettingError) as caught:
        env.read_settings({**OLD, name: value})
    assert str(caught.value).startswith(name)
    assert reason in str(caught.value)
    assert "a:b" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o666, 0o602])
def test_file_with_a_secret_is_refused_when_every_user_may_read_or_write_it(
    mode: int, tmp_path: Path
) -> None:
    """The error names the setting, the file, its mode and the remedy. A group may read the file."""
    file = tmp_path / "secret"
    file.write_text("sasl.password=s3cr\n")
    provider = tmp_path / "providers.toml"
    provider.write_text(
        '[[provider]]\nname = "bank"\ntitle = "Bank"\nissuer = "https://id.example"\n'
        f'client_id = "annals"\nclient_secret_file = "{file}"\n'
    )

    token, oidc = "ANNALS_FALLBACK_TOKEN_FILE", "ANNALS_OIDC_FILE"
    calls: dict[str, Callable[[], object]] = {
        token: lambda: env.read_settings({**OLD, token: str(file)}),
        "ANNALS_LIBRDKAFKA_FILE": lambda: env.read_librdkafka_settings({}, file),
        oidc: lambda: providers.load_providers(env.read_settings({oidc: str(provider)})),
    }
    file.chmod(mode)
    for name, call in calls.items():
        with pytest.raises(env.SettingError) as caught:
            call()
        assert str(caught.value).startswith(name)
        assert f"{file} has mode {mode:04o}" in str(caught.value)
        assert f"chmod 600 {file}" in str(caught.value)
        assert "s3cr" not in str(caught.value)
    for closed in (0o600, 0o400, 0o440):
        file.chmod(closed)
        for call in calls.values():
            call()


def test_librdkafka_file_without_a_secret_may_be_readable_by_every_user(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("security.protocol=SSL\nssl.ca.location=/etc/ca.pem\n")
    file.chmod(0o644)
    assert env.read_librdkafka_settings({}, file)["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    "name, meant",
    [
        ("ANNALS_SECRTE_KEY", "ANNALS_SECRET_KEY"),
        ("ANNALS_RETENTION_DAY", "ANNALS_RETENTION_DAYS"),
        ("ANNALS_ALOWED_HOST", "ANNALS_ALLOWED_HOSTS"),
        ("ANNALS_DATABASE_URL", "DATABASE_URL"),
    ],
)
def test_error_about_unknown_setting_suggests_the_most_similar_name(name: str, meant: str) -> None:
    with pytest.raises(env.SettingError, match=f"^{name} is not .* Did you mean {meant}\\?"):
        env.read_settings({name: "x"})


# Parts of passwords that no error may print.
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


@pytest.mark.parametrize("url", WRONG.values(), ids=WRONG)
def test_wrong_database_url_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(env.SettingError) as caught:
        env.read_settings({"DATABASE_URL": url})
    assert str(caught.value).startswith("DATABASE_URL is wrong: ")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not any(secret in str(caught.value) for secret in SECRETS)


@pytest.mark.parametrize("url", RIGHT)
def test_every_form_of_database_url_that_libpq_accepts_is_accepted(url: str) -> None:
    assert env.read_settings({"DATABASE_URL": url}).database_url == url


KEY = "AKIAEXAMPLE:wJalrXUtn%2FK7"
WHERE = "region=us-east-1&endpoint_override=127.0.0.1:1&scheme=http"


def test_archive_url_is_shown_without_password() -> None:
    assert ArchiveStore(f"s3://{KEY}@bucket/annals?{WHERE}").place == "s3://bucket/annals"
    assert ArchiveStore("/var/lib/annals archive").place == "file:///var/lib/annals%20archive"


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAEXAMPLE:wJalrXUtn/K7@bucket/annals",  # keys of S3 often have slashes
        f"s3://{KEY}@buck et/annals",
        f"s3://{KEY}@bucket/annals?nonsense=wJalrXUtn",
        "gs://wJalrXUtn@bucket/annals?nonsense=1",
    ],
)
def test_wrong_archive_url_is_not_quoted_in_the_error(url: str) -> None:
    with pytest.raises(ArchiveError, match="ANNALS_ARCHIVE_URL is wrong") as caught:
        ArchiveStore(url)
    assert "wJalrXUtn" not in str(caught.value)
    assert caught.value.__suppress_context__
