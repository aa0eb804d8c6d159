"""Guessing is slowed and counted before any hashing, however many try at once."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from annals import env
from annals.access import address, attempts, passwords
from annals.access.models import Attempts
from history import shares
from history.api.access import DemoBasic
from history.shares import Share
from tests.db.partitioned import transactional_db

__all__ = ["transactional_db"]

FORM = "/admin/login/?next=/admin/"


@pytest.fixture
def guesses(db: None) -> None:
    DemoBasic._verified.clear()


def form_answer(name: str, password: str, where: str = "203.0.113.7") -> Any:
    form = {"username": name, "password": password}
    return Client(REMOTE_ADDR=where).post(FORM, form)


def basic_answer(name: str, password: str, where: str = "203.0.113.7") -> Any:
    given = base64.b64encode(f"{name}:{password}".encode()).decode()
    client = Client(REMOTE_ADDR=where)
    return client.get("/api/v1/search?q=x", headers={"Authorization": f"Basic {given}"})


def by_form(name: str, password: str, where: str = "203.0.113.7") -> bool:
    """Whether the form lets in."""
    return bool(form_answer(name, password, where).status_code == 302)


def by_basic(name: str, password: str, where: str = "203.0.113.7") -> bool:
    return bool(basic_answer(name, password, where).status_code == 200)


WAYS = [by_form, by_basic]


@pytest.mark.parametrize("way", WAYS)
def test_a_name_waits_after_five_failures_from_one_address(way: Any, guesses: None) -> None:
    for number in range(5):
        assert not way("support", f"wrong {number}")
    assert not way("support", "support")  # right, and not looked at
    assert way("auditor", "auditor")
    assert way("support", "support", "203.0.113.8")  # its owner is elsewhere


@pytest.mark.parametrize("way", WAYS)
def test_a_login_that_succeeds_is_no_failure(way: Any, guesses: None) -> None:
    for _ in range(30):
        DemoBasic._verified.clear()
        assert way("support", "support")
    assert not Attempts.objects.filter(failures__gt=0).exists()


def test_an_ipv6_client_is_its_whole_network(guesses: None) -> None:
    for number in range(5):
        assert not by_form("support", "wrong", f"2001:db8:1:2::{number + 1}")
    assert not by_form("support", "support", "2001:db8:1:2:ffff::1")
    assert by_form("support", "support", "2001:db8:1:3::1")


def test_an_address_that_tries_many_names(guesses: None) -> None:
    for number in range(20):
        by_form(f"name-{number}", "wrong")
    assert not by_form("support", "support")
    assert by_form("support", "support", "203.0.113.8")


def test_many_addresses_that_guess_one_name_do_not_keep_an_operator_out(
    guesses: None, settings: Any
) -> None:
    settings.OPERATOR_NETWORKS = address.of_operators(
        env.Settings(operator_networks=("198.51.100.0/24",))
    )
    for number in range(attempts.FREE["name"]):
        by_form("admin", "wrong", f"203.0.113.{number}")
    assert not by_form("admin", "admin", "203.0.113.200")
    assert by_form("admin", "admin", "198.51.100.9")
    assert by_form("admin", "admin", "127.0.0.1")
    assert not by_form("admin", "admin", "203.0.113.201")  # still delayed for everybody else


def test_an_hour_without_failures_forgets(guesses: None) -> None:
    for _ in range(8):
        by_form("support", "wrong")
    assert not by_form("support", "support")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE access_attempts SET last = last - interval '61 minutes'")
    assert by_form("support", "support")


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    Attempts.objects.all().delete()
    DemoBasic._verified.clear()
    yield
    Attempts.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE django_session, access_journal")


@pytest.mark.parametrize("way", WAYS)
def test_sixteen_at_once_are_hashed_five_times(
    way: Any, committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    plain = passwords.check_password

    def slow(*args: Any) -> Any:
        hashed.append("once")
        time.sleep(0.2)  # as a real hash would: all sixteen are here before the first one fails
        return plain(*args)

    monkeypatch.setattr(passwords, "check_password", slow)
    monkeypatch.setitem(passwords.HASHING, "others", Share(16))

    def guess(number: int) -> bool:
        try:
            return bool(way("support", f"wrong {number}"))
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        assert not any(pool.map(guess, range(16)))
    assert len(hashed) == attempts.FREE["pair"]


@pytest.mark.parametrize("way", [form_answer, basic_answer])
def test_who_is_too_many_is_refused_unhashed_and_uncounted(
    way: Any, guesses: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "WAIT_S", 0.0)
    with passwords.HASHING["others"].taken():
        for _ in range(6):
            answer = way("support", "support")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert by_form("support", "support", "127.0.0.1")  # an operator has another share
    assert not Attempts.objects.filter(failures__gt=0).exists()
    assert way("support", "support").status_code in (200, 302)


@pytest.mark.parametrize("name", ["glass", "support", "nobody-here"])
def test_nothing_is_hashed_where_no_password_works(
    name: str, guesses: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ANNALS = env.Settings(secret_key="x" * 50)
    hashed: list[str] = []
    for function in ("check_password", "make_password"):
        monkeypatch.setattr(passwords, function, lambda *_: hashed.append("once"))
    assert not by_form(name, "wrong")
    assert hashed == []
    passwords.make_break_glass("glass", "right", timezone.now())
    hashed.clear()
    assert not by_form(name, "wrong")
    assert hashed == ["once"]  # whoever it is
    passwords.switch_off(User.objects.get(username="glass"))
    assert not by_form(name, "wrong")
    assert hashed == ["once"]


def test_equal_passwords_at_once_are_hashed_once(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    plain = passwords.check_password

    def slow(*args: Any) -> Any:
        hashed.append("once")
        time.sleep(0.5)
        return plain(*args)

    monkeypatch.setattr(passwords, "check_password", slow)

    def ask(_: int) -> bool:
        try:
            return by_basic("support", "support")
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(8)))
    assert hashed == ["once"]


def test_a_login_that_does_not_exist_costs_and_counts_the_same(guesses: None) -> None:
    for _ in range(5):
        by_form("nobody-here", "wrong")
    User.objects.create(
        username="nobody-here", password=make_password("right"), is_staff=True, is_active=True
    )
    assert not by_form("nobody-here", "right")
    assert by_form("nobody-here", "right", "203.0.113.9")


def test_a_wrong_network_of_operators_is_named() -> None:
    with pytest.raises(env.SettingError, match=r"ANNALS_OPERATOR_NETWORKS is wrong: 10\.0\.0\.1/8"):
        address.of_operators(env.Settings(operator_networks=("10.0.0.1/8",)))


@pytest.mark.django_db
def test_a_session_of_the_demo_is_worth_nothing_elsewhere(client: Client, settings: Any) -> None:
    """A web with the demo's key on the demo's database, before `migrate` has run."""
    client.force_login(User.objects.get(username="support"))
    assert client.get("/admin/").status_code == 200
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, demo=False)
    assert client.get("/admin/").status_code == 302
    assert client.get("/api/v1/search?q=x").status_code == 401
    glass = passwords.make_break_glass("glass", "right", timezone.now())
    client.force_login(glass, backend="annals.access.passwords.Passwords")
    assert client.get("/admin/").status_code == 200
