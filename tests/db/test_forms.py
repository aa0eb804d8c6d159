"""No process writes a form of data that a connected process cannot read."""

import json
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.db import OperationalError, connection
from django.test import Client

from annals.access import grants
from annals.operations import metrics_page
from annals.operations.alert_checks import collect_values
from annals.operations.deploy_checks import check_first_hour
from history.models import SealedDay
from history.store.database import forms
from history.store.days import days
from history.store.days.canonical import Connection
from ingest.management.preconditions import refuse_incompatible_tables
from ingest.store.session import open_connection
from tests.consuming import wait_until
from tests.db.as_role import PASSWORD, build_url, create_member
from tests.db.commands import read_output
from tests.db.partitioned import connect_plainly, record_all_topics_as_read, run_partitions
from tests.db.store import T0, Store, minute

pytestmark = pytest.mark.usefixtures("tables", "few_days")
DAY = T0.date()
TABLE = "product_instance_aud"
NEWER = f"form_{forms.FORM + 1}_needs_stop"


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time for which packing waits until each session has announced its form of data.

    A session of an earlier release never announces its form, so packing waits for the full time.
    """
    monkeypatch.setattr(forms, "ANNOUNCED_S", 0.3)


@pytest.fixture(autouse=True)
def no_mark(tables: None) -> Iterator[None]:
    """Remove the mark of a database with packed days, before and after the test.

    The mark is a row in the table of migrations.
    """
    forget_marks()
    yield
    forget_marks()


def forget_marks() -> None:
    with connect_plainly() as plain:
        plain.execute("DELETE FROM django_migrations WHERE name LIKE 'form%needs_stop'")


@pytest.fixture
def filled(plain: Connection) -> Connection:
    """Store a day of one table that is due to be packed and is not held."""
    days.create_partition(plain, TABLE, DAY)
    store = Store()
    for version in range(5):
        store.add("D1", version, json.dumps({"n": version}), minute(version))
    record_all_topics_as_read()
    return plain


def is_packed() -> bool:
    return SealedDay.objects.filter(table=TABLE, day=DAY, packed_at__isnull=False).exists()


def find_mark(plain: Connection) -> int | None:
    return forms.find_mark(plain)


@pytest.mark.parametrize("name", ["annals", "annals-consume", "annals-beat"])
def test_pack_is_refused_and_names_connected_session_of_earlier_release(
    name: str, filled: Connection
) -> None:
    with connect_plainly(application_name=name) as earlier:
        code, _, errors = run_partitions("pack", str(DAY), "--entity", "product-instance")
        assert code == 2
        assert f"pid {earlier.info.backend_pid} ({name}, {earlier.info.user}" in errors
        assert "Replace it by this release" in errors
        assert not is_packed()
        assert find_mark(filled) is None
    assert run_partitions("pack", str(DAY), "--entity", "product-instance").code == 0
    assert is_packed()


def test_maintain_does_all_steps_but_packing_and_says_why_when_earlier_release_is_connected(
    filled: Connection,
) -> None:
    with connect_plainly(application_name="annals") as earlier:
        code, out, _ = run_partitions("maintain", "--json")
        answer = json.loads(out)
        assert (code, answer["packed"], answer["broken"]) == (0, [], [])
        assert f"pid {earlier.info.backend_pid}" in answer["packing_waits"]
        assert answer["created"]
        assert "packed 0" in run_partitions("maintain").out
        assert "nothing is packed while" in run_partitions("plan").out.lower()
    assert json.loads(run_partitions("maintain", "--json").out)["packing_waits"] == ""
    assert is_packed()


@pytest.mark.parametrize("role", [grants.WEB, grants.CONSUMER])
def test_session_of_earlier_release_is_found_by_database_role_of_web_or_consumer(
    role: str, filled: Connection
) -> None:
    """The session is found even though its application name does not begin with `annals`."""
    read_output("grants", "--apply")
    with (
        create_member(role) as login,
        psycopg.connect(build_url(login), application_name="web-7") as web,
    ):
        (session,) = forms.find_unready(filled)
        assert (session.pid, session.login) == (web.info.backend_pid, login)
        assert session.application == "web-7"
    assert PASSWORD not in str(session)


def test_operators_see_what_packing_waits_for(filled: Connection, client: Client) -> None:
    Store().add("D2", 0, json.dumps({"large": token_hex(100_000)}), minute(0))
    client.force_login(User.objects.create_superuser("operator"))
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    with connect_plainly(application_name="annals") as earlier:
        session_text = f"pid {earlier.info.backend_pid} (annals, "
        [warning] = [
            message
            for message in check_first_hour(databases=["default"])
            if message.id == "annals.W122"
        ]
        assert session_text in warning.msg
        run_partitions("maintain")
        assert collect_values(metrics_page.STORE_COLLECTOR.collect())[
            "annals_store_earlier_sessions"
        ] == {(): 1}
        assert "waits until no process of an earlier release is connected" in (
            client.get("/admin/days/").content.decode()
        )
        assert "Finished days are not packed" in client.get("/admin/operations/").content.decode()
    assert "annals.W122" not in [message.id for message in check_first_hour(databases=["default"])]
    run_partitions("maintain")
    assert "Finished days are not packed" not in client.get("/admin/operations/").content.decode()


def test_sessions_of_this_release_and_of_other_programs_do_not_prevent_packing(
    filled: Connection,
) -> None:
    connection.ensure_connection()
    foreign = (
        connect_plainly(application_name="psql"),
        connect_plainly(application_name="outbox relay"),
    )
    with open_connection(), open_connection("annals-beat"), foreign[0], foreign[1]:
        assert forms.find_unready(filled) == []


def test_session_announces_its_form_again_after_a_partitions_command(filled: Connection) -> None:
    """Freeing the run lock frees all advisory locks of the session, also the lock that announces
    its form of data."""
    run_partitions("maintain")
    connection.ensure_connection()
    assert forms.find_unready(filled) == []


def test_pool_session_announces_its_form_when_it_replaces_a_broken_session(
    filled: Connection,
) -> None:
    """The session announces its form of data before any request uses it."""
    connection.ensure_connection()
    pool = connection.pool  # type: ignore[attr-defined]  # of psycopg's backend
    connection.connection.close()
    connection.close()
    wait_until(lambda: pool.get_stats()["pool_available"] > 0, "the pool opens no session")
    assert forms.find_unready(filled) == []


def test_pack_waits_for_new_session_to_announce_its_form(
    filled: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "ANNOUNCED_S", 60.0)
    with connect_plainly(application_name="annals") as late:
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            forms.open_session(late)

        monkeypatch.setattr(forms.time, "sleep", sleep)
        forms.activate(filled)
        assert len(slept) == 1


def test_database_does_not_stay_marked_as_packed_when_earlier_release_connects_during_pack(
    filled: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of an earlier release connects after `pack` has listed the sessions, and before
    `pack` marks the database with the form of packed days."""
    real, opened = forms.find_mark, []

    def connect_meanwhile(plain: Any) -> int | None:
        opened.append(connect_plainly(application_name="annals"))
        return real(plain)

    monkeypatch.setattr(forms, "find_mark", connect_meanwhile)
    with pytest.raises(forms.EarlierReleaseError):
        forms.activate(filled)
    opened[0].close()
    assert real(filled) is None


def test_database_stays_marked_as_packed_until_all_days_are_unpacked(
    filled: Connection,
) -> None:
    """The mark is the name of a migration. Release 0.1.0 refuses a database with an unknown
    migration that ends in `needs_stop`."""
    run_partitions("maintain")
    assert is_packed()
    names = filled.execute("SELECT name FROM django_migrations WHERE name LIKE '%needs_stop'")
    assert names.fetchall() == [(f"form_{forms.FORM}_needs_stop",)]
    code, out, _ = run_partitions("unpack", "--all")
    assert (code, is_packed(), find_mark(filled)) == (0, False, None)
    assert "an earlier release can read every day" in out


def test_unpack_command_needs_a_day_or_the_option_all(filled: Connection) -> None:
    for words in ((), (str(DAY), "--all")):
        code, _, errors = run_partitions("unpack", *words)
        assert (code, errors) == (2, "Name the day, or give --all.")


def test_process_refuses_database_with_rows_of_a_newer_form(
    filled: Connection, client: Client
) -> None:
    client.raise_request_exception = False
    client.force_login(User.objects.create_superuser("reader"))
    filled.execute(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('history', %s, now())", [NEWER]
    )
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # of psycopg's backend
    with pytest.raises(OperationalError, match="a newer release has written rows of form 3"):
        connection.ensure_connection()
    assert client.get("/readyz").status_code == 503
    assert client.get("/api/v1/history/product-instance/D1").status_code == 503
    with pytest.raises(forms.NewerFormError):
        open_connection()
    with pytest.raises(CommandError, match="start the newer release"):
        refuse_incompatible_tables()
