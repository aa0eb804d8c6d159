"""Passwords work only in the demo. A break-glass link works once and expires in ten minutes."""

import base64
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone
from prometheus_client import REGISTRY

from annals.access import local_logins, sessions
from annals.access.local_logins import (
    BREAK_GLASS_BACKEND,
    create_break_glass_link,
    create_break_glass_login,
)
from annals.access.management.commands.breakglass import Command as Breakglass
from annals.access.models import BreakGlass, Identity, JournalEntry, LogoutToken, ProviderSession
from annals.access.roles import disable_demo_logins
from annals.operations.metrics_page import count_anonymous_refusals
from history.policy.access_record import AccessRecord
from tests.db.commands import run_command
from tests.db.partitioned import transactional_db
from tests.db.store import Store
from tests.messages import NOW

__all__ = ["transactional_db"]

PRODUCTION = ["annals.access.local_logins.BreakGlassLogins"]


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    yield
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_session, access_journal")
    User.objects.filter(username="glass").delete()


def log_in_by_basic(name: str, password: str) -> bool:
    encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
    answer = Client().get("/api/v1/search?q=x", headers={"Authorization": f"Basic {encoded}"})
    return bool(answer.status_code == 200)


def log_in_by_form(name: str, password: str) -> bool:
    form = {"username": name, "password": password}
    return bool(Client().post("/admin/login/?next=/admin/", form).status_code == 302)


@pytest.mark.parametrize("log_in", [log_in_by_form, log_in_by_basic])
def test_demo_login_needs_the_right_password_and_an_active_account(log_in: Any, db: None) -> None:
    assert log_in("support", "support")
    before = count_anonymous_refusals()
    assert not log_in("support", "wrong")
    assert not log_in("nobody-here", "wrong")
    assert count_anonymous_refusals() == before + 2
    User.objects.filter(username="support").update(is_active=False)
    assert not log_in("support", "support")


def test_session_of_demo_is_refused_in_production(client: Client, db: None, settings: Any) -> None:
    """A demo login stays active until `migrate` runs in production.

    Production refuses the session even if it has the secret key and the database of the demo.
    """
    client.force_login(User.objects.get(username="support"))
    assert client.get("/admin/").status_code == 200
    settings.AUTHENTICATION_BACKENDS = PRODUCTION
    assert client.get("/admin/").status_code == 302
    assert client.get("/api/v1/search?q=x").status_code == 401
    client.force_login(
        create_break_glass_login("glass", NOW), backend=local_logins.BREAK_GLASS_BACKEND
    )
    assert client.get("/admin/").status_code == 200


def test_password_is_refused_in_production(db: None, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, demo=False)
    settings.AUTHENTICATION_BACKENDS = PRODUCTION
    glass = create_break_glass_login("glass", NOW)
    glass.set_password("a long password")
    glass.save()
    assert not log_in_by_form("support", "support")
    assert not log_in_by_form("glass", "a long password")
    assert b'name="password"' not in Client().get("/admin/login/").content


def create_link_path(user: User) -> str:
    return urlsplit(create_break_glass_link(user)).path


def count_break_glass_logins() -> float:
    return REGISTRY.get_sample_value("annals_break_glass_logins_total") or 0.0


def test_break_glass_link_works_once(
    client: Client, db: None, caplog: pytest.LogCaptureFixture
) -> None:
    path, before = (
        create_link_path(create_break_glass_login("glass", NOW)),
        count_break_glass_logins(),
    )
    for _ in range(2):
        # A program that only fetches the link does not use it up.
        assert client.get(path).status_code == 200
    assert client.get("/admin/").status_code == 302
    with caplog.at_level(logging.ERROR):
        answer = client.post(path)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
    assert client.get("/admin/").status_code == 200
    assert (count_break_glass_logins(), "BREAK GLASS: 'glass' logged in" in caplog.text) == (
        before + 1,
        True,
    )
    other_client = Client()
    assert other_client.post(path).status_code == 403
    assert other_client.get("/admin/").status_code == 302


@pytest.mark.parametrize("minutes, status", [(11, 403), (9, 302)])
def test_break_glass_link_expires_after_ten_minutes(
    minutes: int, status: int, client: Client, db: None
) -> None:
    made_at = timezone.now() - timedelta(minutes=minutes)
    path = urlsplit(create_break_glass_link(create_break_glass_login("glass", NOW), made_at)).path
    assert client.post(path).status_code == status


def test_break_glass_link_is_not_stored_in_database(db: None) -> None:
    """A person who reads a database dump must not be able to log in."""
    user = create_break_glass_login("glass", NOW)
    token = create_link_path(user).rstrip("/").rpartition("/")[2]
    user.refresh_from_db()
    assert token not in user.password
    assert not user.has_usable_password()


def test_log_does_not_contain_unused_break_glass_link(
    client: Client, db: None, caplog: pytest.LogCaptureFixture
) -> None:
    path = create_link_path(create_break_glass_login("glass", NOW))
    with caplog.at_level(logging.INFO):
        assert client.get(path).status_code == 200
    assert "GET /break-glass/glass/-/" in caplog.text
    assert path not in caplog.text


def test_login_page_names_breakglass_command_when_no_provider_is_declared(
    client: Client, db: None, settings: Any
) -> None:
    settings.OIDC_PROVIDERS = ()
    hint = b"annals breakglass NAME"
    assert hint not in client.get("/admin/login/").content
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, demo=False)
    assert hint in client.get("/admin/login/").content


def test_break_glass_link_still_works_after_secret_key_was_changed(
    client: Client, db: None, settings: Any
) -> None:
    settings.SECRET_KEY = "one" * 20
    path = create_link_path(create_break_glass_login("glass", NOW))
    settings.SECRET_KEY = "another" * 10
    assert client.post(path).status_code == 302
    assert client.get("/admin/").status_code == 200


def test_breakglass_is_refused_when_public_host_is_not_set(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, demo=False)
    monkeypatch.delenv("ANNALS_ALLOWED_HOSTS", raising=False)
    ran = run_command("breakglass", "glass")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("ANNALS_ALLOWED_HOSTS is not set")
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, allowed_hosts=("*", ".bank"))
    monkeypatch.setenv("ANNALS_ALLOWED_HOSTS", "*,.bank")
    ran = run_command("breakglass", "glass")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("ANNALS_ALLOWED_HOSTS=*,.bank names no host")
    assert not User.objects.filter(username="glass").exists()
    hosts = (".bank", "annals.bank")
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, allowed_hosts=hosts)
    assert run_command("breakglass", "glass").out.startswith(
        "http://annals.bank/break-glass/glass/"
    )


BAD_NAMES = [
    "",
    " ",
    "a/b",
    "..",
    ".a",
    "-a",
    "_a",
    "a b",
    "a@bank",
    "имя",
    "a?b",
    "a#b",
    "a%2f",
    "a\n",
]
BAD_NAMES += ["a" * 65, "a\0", "a\n"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_breakglass_refuses_name_with_forbidden_characters(name: str, db: None) -> None:
    before = User.objects.count()
    with pytest.raises(CommandError, match="Latin letters"):
        Breakglass().handle(name=name, remove=False)
    assert User.objects.count() == before


@pytest.mark.parametrize("person", ["ivanov@bank", "Ivanov@bank", "IVANOV"])
def test_break_glass_login_is_not_created_with_login_name_of_person(person: str, db: None) -> None:
    User.objects.create_user(person)
    with pytest.raises(ValidationError):
        create_break_glass_login("ivanov", NOW)
    assert not BreakGlass.objects.exists()


def test_breakglass_creates_no_login_when_link_cannot_be_made(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> str:
        raise RuntimeError

    monkeypatch.setattr(local_logins, "reverse", fail)
    with pytest.raises(RuntimeError):
        call_command("breakglass", "glass")
    assert not User.objects.filter(username="glass").exists()


@pytest.mark.parametrize("change", ["again", "remove", "other", "token"])
def test_break_glass_link_is_refused_after_it_was_replaced_or_changed(
    change: str, client: Client, db: None
) -> None:
    path = create_link_path(create_break_glass_login("glass", NOW))
    if change == "again":
        call_command("breakglass", "glass")
    elif change == "remove":
        call_command("breakglass", "glass", remove=True)
    elif change == "other":  # a link of another login, even of a superuser
        User.objects.create_superuser("root")
        path = path.replace("glass/glass", "glass/root")
    else:
        path = path[:-2] + ("a/" if path[-2] != "a" else "b/")
    assert client.post(path).status_code == 403
    assert client.get("/admin/").status_code == 302


def test_break_glass_link_works_once_when_used_concurrently(committed: None) -> None:
    path = create_link_path(create_break_glass_login("glass", NOW))

    def use(_: int) -> int:
        try:
            return Client().post(path).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(use, range(4))) == [302, 403, 403, 403]


def test_break_glass_link_is_refused_without_csrf_token_of_the_page(db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post(create_link_path(create_break_glass_login("glass", NOW))).status_code == 403


def test_break_glass_login_is_not_created_under_name_of_a_person(db: None) -> None:
    with pytest.raises(ValidationError):
        create_break_glass_login("support", NOW)


@pytest.mark.parametrize(
    "https, hosts, begin",
    [
        (False, ("localhost",), "http://localhost/break-glass/glass/"),
        (True, (".bank", "*", "annals.bank"), "https://annals.bank/break-glass/glass/"),
    ],
)
def test_break_glass_link_begins_with_public_address_of_annals(
    https: bool, hosts: tuple[str, ...], begin: str, db: None, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, https=https, allowed_hosts=hosts)
    assert create_break_glass_link(create_break_glass_login("glass", NOW)).startswith(begin)


API = "/api/v1/history/product-instance/A1"


@pytest.mark.parametrize("address", [API, "/admin/history/product-instance/A1/"])
def test_session_that_is_deleted_during_request_is_not_restored(
    store: Store, client: Client, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session can end while the request runs, for example by a logout in a second window."""
    store.add("A1", 0, {"n": 1}, 0)
    client.force_login(User.objects.get(username="support"))

    def end(*_: Any) -> None:
        Session.objects.all().delete()

    monkeypatch.setattr(AccessRecord, "note_read", end)
    assert client.get(address).status_code == 200
    assert not Session.objects.exists()
    assert client.get(API).status_code == 401


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def stored_logins(db: None) -> None:
    identity = Identity.objects.create(
        issuer="i", subject="s", user=User.objects.get(username="support"), login="support"
    )
    for name, minutes in (("live", 5), ("ended", -5), ("ended-2", -5000)):
        Session.objects.create(
            session_key=name, session_data="", expire_date=NOON + timedelta(minutes=minutes)
        )
    for name, hours in (("live", 20), ("ended", 20), ("gone", 20), ("beginning", 0)):
        ProviderSession.objects.create(
            session_key=name, identity=identity, began=NOON - timedelta(hours=hours)
        )
    for name, minutes in (("counts", 59), ("forgotten", 121)):
        LogoutToken.objects.create(digest=name, until=NOON + timedelta(minutes=60 - minutes))


def test_demo_login_does_not_replace_stored_password_hash(
    client: Client, store: Store, settings: Any
) -> None:
    """A demo login must not replace a strong hash by a hash with a single iteration."""
    settings.PASSWORD_HASHERS = ["annals.access.local_logins.DemoHasher"]
    hasher = PBKDF2PasswordHasher()
    words = "a real one"
    encoded = hasher.encode(words, hasher.salt())
    User.objects.filter(username="support").update(password=encoded)
    form = {"username": "support", "password": words}
    assert client.post("/admin/login/?next=/admin/", form).status_code == 302
    assert User.objects.get(username="support").password == encoded


def test_ended_sessions_are_removed(stored_logins: None) -> None:
    assert sessions.remove_ended_sessions(NOON) == 5
    assert set(Session.objects.values_list("session_key", flat=True)) == {"live"}
    assert set(ProviderSession.objects.values_list("session_key", flat=True)) == {
        "live",
        "beginning",
    }
    assert [row.digest for row in LogoutToken.objects.all()] == ["counts"]
    assert sessions.remove_ended_sessions(NOON) == 0


def test_used_break_glass_login_can_be_switched_off(client: Client, store: Store) -> None:
    disable_demo_logins()
    call_command("breakglass", "glass")
    user = User.objects.get(username="glass")
    client.force_login(user, backend=BREAK_GLASS_BACKEND)
    assert client.get("/api/v1/search?q=x").status_code == 200
    LogEntry.objects.create(user=user, action_flag=2, object_repr="a label")
    call_command("breakglass", "glass", remove=True)
    assert client.get("/api/v1/search?q=x").status_code == 401
    user.refresh_from_db()
    assert (user.is_active, user.is_superuser, user.has_usable_password()) == (False, False, False)
    assert LogEntry.objects.get().user == user
    assert JournalEntry.objects.filter(login="glass").exists()
    call_command("breakglass", "glass")
    user.refresh_from_db()
    assert (user.is_active, user.is_superuser, user.has_usable_password()) == (True, True, False)
