"""The database rights of the web's login are enough for the screens and the API."""

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import ProgrammingError, connection
from django.test import Client

from annals.access.grants import WEB
from annals.access.journal import days as journal
from history.models import FieldLabel, Person
from history.store.catalogue import labels
from ingest.models import Quarantined
from ingest.store.session import open_connection
from tests.db.as_role import Plain, log_in_as
from tests.db.ingested import Ingested
from tests.messages import make_value

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def web(ingested: Ingested, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Connect Django to PostgreSQL as a login with only the rights of the web, and yield its name.

    The store has the application A1, and one message in quarantine.
    """
    ingested.write(
        make_value(id="A1", version=0),
        make_value(id="A1", version=1, data={"rate": "9.75"}),
        b"bad",
    )
    journal.create_coming_days()
    call_command("grants", apply=True, stdout=StringIO())
    with log_in_as(WEB, monkeypatch) as login:
        yield login


def log_in(name: str) -> Client:
    """Return a client in which this demo login has submitted the login form."""
    client = Client()
    form = {"username": name, "password": name}
    assert client.post("/admin/login/?next=/admin/", form).status_code == 302
    return client


def test_database_login_of_web_can_show_history(web: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == (web,)
    support = log_in("support")
    for address in (
        "/admin/applications/A1/",
        "/admin/history/product-instance/A1/",
        "/admin/history/product-instance/A1/versions/1/",
        "/admin/history/product-instance/A1/compare/?from=0&to=1",
        "/admin/completeness/",
        *(
            f"/api/v1/history/product-instance/A1{call}"
            for call in (
                "",
                "/blame",
                "/fields?path=/rate",
                "/versions/0",
                "/compare?from=0&to=1",
                "/at?time=2099-01-01",
            )
        ),
        "/api/v1/applications/A1/history",
        "/api/v1/applications/A1/at?time=2099-01-01",
        "/api/v1/search?q=A1",
        "/api/v1/completeness",
        "/metrics",
    ):
        answer = support.get(address)
        assert answer.status_code == 200, (address, answer.content[:300])
    assert support.get("/readyz").json()["checks"]["migrations"] == "ok"
    support.post("/admin/logout/")
    assert support.get("/admin/").status_code == 302


@pytest.fixture
def owner() -> Iterator[Plain]:
    """Yield a connection of the owner of the tables. Tests request it before the fixture `web`."""
    with open_connection("test-owner") as plain:
        yield plain


@pytest.mark.parametrize(
    "acquired, text",
    [
        ("INSERT ON access_journal", "INSERT on access_journal.login"),
        ("SELECT ON participant_role_aud", "SELECT on participant_role_aud"),
        ("UPDATE (session_data) ON django_session", "UPDATE on django_session.session_data"),
        ("SELECT (status) ON ingest_quarantine", "SELECT on ingest_quarantine.status"),
    ],
)
def test_web_is_not_ready_when_a_database_right_is_missing(
    owner: Plain, web: str, acquired: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert Client().get("/readyz").json()["checks"]["rights"] == "ok"
    owner.execute(f"REVOKE {acquired} FROM {WEB}")
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert "run `annals grants --apply`" in answer.json()["checks"]["rights"]
    assert text in caplog.text


def test_readiness_check_names_command_to_run_when_login_lacks_rights(
    owner: Plain, web: str
) -> None:
    owner.execute(f"REVOKE {WEB} FROM {web}")
    checks = Client().get("/readyz").json()["checks"]
    assert "annals grants --apply" in checks["rights"]
    assert checks["migrations"] == "the database login lacks the right to check this"


def test_database_login_of_web_can_edit_people_and_labels(web: str) -> None:
    admin = log_in("admin")
    values = {"login": "i.ivanov", "full_name": "Ivanov", "kind": "person"}
    assert admin.post("/admin/history/person/add/", values).status_code == 302
    page = "/admin/history/person/i.ivanov"
    changed = values | {"full_name": "Ivanov I."}
    assert admin.post(f"{page}/change/", changed).status_code == 302
    assert Person.objects.get(login="i.ivanov").full_name == "Ivanov I."
    assert admin.get(f"{page}/history/").status_code == 200
    assert admin.post(f"{page}/delete/", {"post": "yes"}).status_code == 302
    assert not Person.objects.filter(login="i.ivanov").exists()
    label = {"path": "/own", "russian": "Свой", "kind": "text", "words": "{}"}
    assert admin.post("/admin/history/fieldlabel/add/", label).status_code == 302
    created = FieldLabel.objects.get(path="/own")
    page = f"/admin/history/fieldlabel/{created.pk}"
    assert admin.post(f"{page}/change/", label | {"russian": "Иной"}).status_code == 302
    created.refresh_from_db()
    assert created.russian == "Иной"
    assert admin.post(f"{page}/delete/", {"post": "yes"}).status_code == 302


def test_database_login_of_web_can_deactivate_a_django_user(web: str) -> None:
    admin, support = log_in("admin"), log_in("support")
    user = User.objects.get(username="support")
    page = f"/admin/auth/user/{user.pk}/change/"
    form = {
        "is_active": "on",
        # These are not fields of the form, so they stay unchanged.
        "is_superuser": "on",
        "is_staff": "",
        "password": "x",
    }
    assert admin.post(page, form).status_code == 302
    user = User.objects.get(username="support")
    assert (user.is_superuser, user.is_staff, user.is_active) == (False, True, True)
    assert support.get("/admin/").status_code == 200
    del form["is_active"]
    assert admin.post(page, form).status_code == 302
    assert support.get("/admin/").status_code == 302
    assert admin.get(f"/admin/auth/user/{user.pk}/history/").status_code == 200
    assert admin.get("/admin/auth/user/?is_active__exact=0&q=supp").status_code == 200


def test_database_login_of_web_can_list_quarantined_messages(web: str) -> None:
    ops = log_in("ops")
    [pending] = Quarantined.objects.values_list("id", flat=True)
    for address in ("", "?status=new&reason=not_json", "?q=1", f"{pending}/change/"):
        assert ops.get(f"/admin/ingest/quarantined/{address}").status_code == 200, address


def test_database_login_of_web_can_unmask_and_read_journal(web: str) -> None:
    FieldLabel.objects.create(path="/rate", russian="Ставка", sensitive=True)
    labels.forget_catalogue()
    privacy = log_in("privacy")
    page = "/admin/history/product-instance/A1/versions/1/unmask/"
    form = {"path": "/rate", "reason": "asked by the client"}
    answer = privacy.post(page, form)
    assert (answer.status_code, b"9.75" in answer.content) == (200, True)
    assert "asked by the client" in privacy.get("/admin/journal/").content.decode()


def test_database_login_of_web_can_run_the_documented_commands(web: str, tmp_path: Path) -> None:
    """docs/operations.md names the commands."""
    people, names = tmp_path / "people.csv", tmp_path / "labels.json"
    for _ in range(2):  # the second run changes the existing rows
        people.write_text(f"login,full_name,kind\na.b,Name {_},person\n")
        names.write_text(json.dumps([{"path": "/own", "russian": f"Имя {_}"}]))
        call_command("people", "import", str(people), stdout=StringIO())
        call_command("labels", "load", str(names), stdout=StringIO())
    for words in (
        ("quarantine", "list"),
        ("quarantine", "list", "--ids", "--all"),
        ("ledger", "--offline"),
        ("partitions", "list"),
        ("partitions", "plan"),
        ("capacity", "--rps", "10", "--avg-bytes", "2000"),
    ):
        call_command(*words, stdout=StringIO(), stderr=StringIO())
    with pytest.raises(ProgrammingError, match="permission denied"):
        call_command("quarantine", "show", "1", stdout=StringIO())
