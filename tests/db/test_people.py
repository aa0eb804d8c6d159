"""The full names of people: importing them from a file, and names from the identity provider."""

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from history.models import Person
from history.store.catalogue.people import NamedLogin, fetch_named_logins, remember_login

pytestmark = pytest.mark.django_db
HEADER = "login,full_name,kind\n"


def import_people(path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    path.write_text(text, encoding="utf-8")
    call_command("people", "import", str(path))
    return capsys.readouterr().out


def test_people_import_counts_added_changed_and_unchanged_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "people.csv"
    first = HEADER + "anna,Анна Ким,person\nrobot,Робот,service\n"
    assert import_people(file, first, capsys) == "2 added, 0 changed, 0 unchanged.\n"
    assert import_people(file, first, capsys) == "0 added, 0 changed, 2 unchanged.\n"
    second = "\ufeff" + 'kind, login ,full_name\nperson,anna,Анна Ли\nperson,olga,"Ким, Ольга"\n'
    assert import_people(file, second, capsys) == "1 added, 1 changed, 0 unchanged.\n"
    assert fetch_named_logins(["anna", "robot", "olga", "x", None]) == {
        "anna": NamedLogin("anna", "Анна Ли", "person"),
        "robot": NamedLogin("robot", "Робот", "service"),
        "olga": NamedLogin("olga", "Ким, Ольга", "person"),
        "x": NamedLogin("x", "x", "unknown"),
    }


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("", "line 1: the header must be login,full_name,kind; it is empty"),
        ("login,name\n", "line 1: the header must be login,full_name,kind; it is login,name"),
        (HEADER + "a,A,person\n,B,person\n", "line 3: login is empty"),
        (HEADER + ",B,person\nc,,person\n", "login is empty\nline 3: full_name is empty"),
        (HEADER + "a,A,human\n", "line 2: kind is human; it must be person or service"),
        (HEADER + "a,A\n", "line 2: must have 3 values"),
        (HEADER + "a,A,person,more\n", "line 2: must have 3 values"),
        (
            HEADER + "a,A,person\nb,B,person\na,C,person\n",
            "line 4: login a is already in line 2",
        ),
        (HEADER + "x" * 65 + ",A,person\n", "line 2: login is longer than 64 characters"),
        (
            HEADER + "a," + "x" * 201 + ",person\n",
            "line 2: full_name is longer than 200 characters",
        ),
    ],
)
def test_import_of_wrong_people_file_reports_line_of_error_and_changes_nothing(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "people.csv"
    file.write_text(text)
    with pytest.raises(CommandError) as refused:
        call_command("people", "import", str(file))
    assert sentence in str(refused.value)
    assert not Person.objects.exists()


def test_name_that_bank_entered_is_not_replaced_at_login() -> None:
    """At a login the name is a claim, and at many identity providers people choose it
    themselves."""
    Person.objects.create(login="top-crm", full_name="Обмен с CRM", kind="service")
    Person.objects.create(login="anna", full_name="Анна", kind="person")
    for login in ("top-crm", "anna", "new"):
        remember_login(login, "Анна Ким", "user:1")
    assert fetch_named_logins(["top-crm", "anna", "new"]) == {
        "top-crm": NamedLogin("top-crm", "Обмен с CRM", "service"),
        "anna": NamedLogin("anna", "Анна", "person"),
        "new": NamedLogin("new", "Анна Ким", "person"),
    }


def read_name(login: str) -> str:
    return Person.objects.get(login=login).full_name


def test_name_from_identity_provider_is_replaced_only_when_same_identity_logs_in(
    tmp_path: Path,
) -> None:
    remember_login("anna", "Анна", "user:1")
    remember_login("anna", "Mallory", "user:2")
    assert read_name("anna") == "Анна"
    remember_login("anna", "Анна Ким", "user:1")
    assert read_name("anna") == "Анна Ким"
    # Now the bank has entered the name, although it is the same name.
    file = tmp_path / "people.csv"
    file.write_text(HEADER + "anna,Анна Ким,person\n")
    call_command("people", "import", str(file))
    remember_login("anna", "Mallory", "user:1")
    assert read_name("anna") == "Анна Ким"


def test_name_saved_on_screen_is_not_replaced_at_login(admin_client: Client) -> None:
    remember_login("anna", "Анна", "user:1")
    form = {"login": "anna", "full_name": "Анна Ким", "kind": "person"}
    assert admin_client.post("/admin/history/person/anna/change/", form).status_code == 302
    remember_login("anna", "Mallory", "user:1")
    assert read_name("anna") == "Анна Ким"
