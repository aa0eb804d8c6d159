"""Only the privacy officer reads the access journal, and reading it is an access."""

import csv
import html
import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection
from django.test import Client

from annals.access.journal import read, screen, write
from annals.access.journal.actions import AccessAction
from annals.access.journal.days import TABLE
from annals.access.journal.read import JournalFilters, generate_lines
from annals.access.models import JournalEntry, format_user_identity
from annals.access.roles import ROLES
from history.models import Person
from tests.access.test_permissions import ENTITY
from tests.db.store import Store

JOURNAL = "/admin/journal/"
API = f"/api/v1/{ENTITY}"


def add_entry(login: str, minutes: float = 1, **columns: Any) -> None:
    """Add a journal entry that is this many minutes old."""
    fields: dict[str, Any] = {
        "actor": "person",
        "address": "203.0.113.7",
        "request_id": f"r-{login}",
        "method": "GET",
        "action": "timeline",
        "entity": "product-instance",
        "entity_id": "A1",
        "application": "A1",
        "outcome": "shown",
        "status": 200,
        "query": API,
        **dict.fromkeys(("reason", "identity", "path", "moment"), ""),
    }
    JournalEntry.objects.create(
        login=login, at=datetime.now(UTC) - timedelta(minutes=minutes), **{**fields, **columns}
    )


def create_day_of_moment(minutes: float) -> None:
    """Create the journal partition for the moment this many minutes ago."""
    day = (datetime.now(UTC) - timedelta(minutes=minutes)).date()
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE}_{day:%Y%m%d} PARTITION OF {TABLE}"
            f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
        )


@pytest.fixture
def officer(client: Client, db: None) -> Client:
    create_day_of_moment(24 * 60)
    client.force_login(User.objects.get(username="privacy"))
    return client


def open_page(client: Client, **query: object) -> str:
    answer = client.get(JOURNAL, query)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def download_csv(client: Client, **query: object) -> str:
    """Return the CSV text that the journal page offers for download."""
    answer: Any = client.get(JOURNAL, {**query, "format": "csv"})
    return b"".join(answer.streaming_content).decode()


def list_logins(client: Client, **query: object) -> list[str]:
    """Return the login in each row of the journal page, from top to bottom, without `privacy`.

    The tests open the page as the login `privacy`, and each opening adds a row with this login.
    """
    actual = re.findall(
        r'<td class="who"><a href="/admin/journal/\?login=([^"]*)"', open_page(client, **query)
    )
    return [login for login in actual if login != "privacy"]


@pytest.mark.parametrize(
    ("query", "field_name"),
    [
        ({"since": "bad"}, "From"),
        ({"action": "bogus"}, "Action"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "To"),
    ],
)
def test_wrong_journal_filter_is_reported_and_prevents_csv_download(
    query: dict[str, str], field_name: str, officer: Client
) -> None:
    add_entry("m.ivanov")
    content = open_page(officer, **query)
    assert f"Wrong, and not used: {field_name}." in content
    assert "format=csv" not in content
    file = officer.get(JOURNAL, {**query, "format": "csv"})
    assert (file.status_code, "Wrong, and not used" in file.content.decode()) == (400, True)
    assert "Wrong, and not used" not in open_page(officer, since="2026-11-01")


def test_start_page_links_journal_for_privacy_officer_only(client: Client, db: None) -> None:
    for role in ROLES:
        client.force_login(User.objects.get(username=role))
        is_linked = JOURNAL in client.get("/admin/").content.decode()
        assert is_linked is (role == "privacy"), role


def test_journal_page_shows_newest_entries_first_with_full_names(officer: Client) -> None:
    petrov = User.objects.create(username="m.petrov@bank", last_name="Петров Михаил")
    add_entry("first", 3)
    identity = format_user_identity(petrov.pk)
    add_entry(
        "m.petrov@bank", 2, reason="Жалоба 17", outcome="refused", status=403, identity=identity
    )
    add_entry("audit-system", 1, actor="service", action="search", entity="", entity_id="")
    write.record_operator_access(
        AccessAction.EXPORT, "export", "asked by the client", application="A1"
    )
    assert list_logins(officer) == [
        write.get_system_login(),
        "audit-system",
        "m.petrov%40bank",
        "first",
    ]
    text = open_page(officer)
    for word in (
        "Петров Михаил",
        "Жалоба 17",
        "refused",
        "program",
        "search",
        "203.0.113.7",
        "operator on the server",
        "asked by the client",
    ):
        assert word in text, word


@pytest.mark.parametrize(
    "query, expected",
    [
        ({"login": "one"}, ["one"]),
        ({"application": "A1"}, ["four", "two", "one"]),
        ({"id": "R1"}, ["two"]),
        ({"entity": "participant-role"}, ["two"]),
        ({"entity": "quarantine"}, ["three"]),
        ({"action": "compare"}, ["four"]),
        ({"outcome": "refused"}, ["four"]),
        ({"application": "A1", "outcome": "shown"}, ["two", "one"]),
        ({"login": "nobody-such"}, []),
        ({"since": "2020-01-01", "until": "2020-01-02"}, []),
        ({"since": "not a day"}, ["four", "three", "two", "one"]),
        ({"page": "no token"}, ["four", "three", "two", "one"]),
    ],
)
def test_journal_filter_selects_entries(
    query: dict[str, str], expected: list[str], officer: Client
) -> None:
    add_entry("one", 40)
    add_entry("two", 30, entity="participant-role", entity_id="R1")
    add_entry("three", 20, entity="quarantine", entity_id="7", application="", action="quarantine")
    add_entry("four", 10, outcome="refused", status=403, action="compare")
    assert list_logins(officer, **query) == expected


def test_journal_filter_includes_its_whole_last_day(officer: Client) -> None:
    officer.cookies["annals_zone"] = "moscow"
    today = datetime.now(ZoneInfo("Europe/Moscow")).date()
    add_entry("yesterday", 24 * 60)
    add_entry("today", 0)
    assert list_logins(officer, since=today, until=today) == ["today"]
    assert list_logins(officer, until="yesterday") == ["yesterday"]
    assert list_logins(officer, until="31.12.9999", since=f"{today:%d.%m}") == ["today"]


def test_journal_pages_show_each_entry_once_while_new_entries_arrive(
    officer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "PAGE_SIZE", 3)
    moment = datetime.now(UTC) - timedelta(minutes=30)
    for number in range(10):
        add_entry(f"l{number}", 30)
    JournalEntry.objects.update(at=moment)  # two entries of one moment are sorted by id
    actual, address = [], f"{JOURNAL}?application=A1"
    for _ in range(4):
        add_entry("new", 0)  # arrives between the first page and the next one
        text = html.unescape(officer.get(address).content.decode())
        actual += re.findall(r'<td class="who"><a href="/admin/journal/\?login=(l\d)"', text)
        older = re.search(r'rel="next" href="([^"]*)"', text)
        address = older[1] if older else ""
    assert sorted(actual) == [f"l{number}" for number in range(10)]


def test_journal_page_shows_entries_of_a_whole_year(officer: Client) -> None:
    for days in (20, 100, 200, 364):
        create_day_of_moment(days * 24 * 60)
        add_entry(f"d{days}", days * 24 * 60)
    assert list_logins(officer) == ["d20", "d100", "d200", "d364"]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN"
            " (SELECT inhrelid FROM pg_inherits WHERE inhparent = %s::regclass)",
            [TABLE],
        )
        assert (cursor.fetchone() or (0,))[0] >= 4


def test_reading_the_journal_writes_journal_entry(officer: Client) -> None:
    open_page(officer, application="A1", login="somebody")
    row = JournalEntry.objects.get()
    assert (row.login, row.action, row.application) == ("privacy", "journal", "A1")
    assert row.query == "/admin/journal/?login=somebody"
    assert "privacy" in open_page(officer)


def test_csv_file_of_journal_has_the_filtered_entries(officer: Client) -> None:
    add_entry("=cmd|' /C calc'!A0", 2, reason="+A1", query="@x")
    add_entry("other", 1, application="A2")
    answer: Any = officer.get(JOURNAL, {"format": "csv", "application": "A1"})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    own_row, row = csv.DictReader(io.StringIO(text))
    assert own_row["action"] == "journal"  # the download itself is an access, with the filter A1
    assert (row["login"], row["reason"], row["query"]) == ("'=cmd|' /C calc'!A0", "'+A1", "'@x")
    assert datetime.fromisoformat(row["at"]).tzinfo is not None


FORMULAS = [
    "=1+1",
    " =1+1",
    "＝1+1",
    "x;=cmd|' /C calc'!A0;",
    'x\n=HYPERLINK("http://evil";"click")',
    "\t=SUM(1)",
    "a\r-SUM(1)",
    "x; @sum(1)",
]


def test_download_is_refused_while_login_has_another_unfinished_download(officer: Client) -> None:
    """A client that reads the file slowly occupies a thread of the web process."""
    first: Any = officer.get(f"{JOURNAL}?format=csv")
    assert officer.get(f"{JOURNAL}?format=csv").status_code == 503
    assert b"login" in b"".join(first.streaming_content)
    last: Any = officer.get(f"{JOURNAL}?format=csv")
    assert b"login" in b"".join(last.streaming_content)


@pytest.mark.parametrize("text", FORMULAS)
def test_csv_file_of_journal_has_no_cell_that_begins_a_formula(text: str, officer: Client) -> None:
    add_entry("a", 1, reason=text, entity_id=text, query=text)
    answer: Any = officer.get(JOURNAL, {"format": "csv"})
    file = b"".join(answer.streaming_content).decode("utf-8-sig")
    for delimiter in (",", ";", "|", "\t"):
        for begin in csv.reader(io.StringIO(file), delimiter=delimiter):
            for actual in begin:
                assert not actual.strip().startswith(("=", "+", "-", "@", "＝")), actual


def test_journal_page_shows_full_name_of_user_to_whom_identity_of_entry_belongs(
    officer: Client,
) -> None:
    """The page does not show the name of a person who has only the same login name."""
    Person.objects.create(login="m.petrov", full_name="Петров из банка", kind="person")
    first = User.objects.create(username="m.petrov@bank", last_name="Петров из банка")
    two = User.objects.create(username="m.petrov@keycloak", last_name="Петрова Анна")
    add_entry("m.petrov@bank", 4, identity=format_user_identity(first.pk))
    add_entry("m.petrov@keycloak", 3, identity=format_user_identity(two.pk))
    add_entry("m.petrov@gone", 2, identity="user:987654")
    add_entry("m.petrov", 1, actor="service", identity="https://issuer.example#m.petrov")
    add_entry("m.petrov", 0.5, actor="break-glass", identity="user:987655")
    actual = [
        (line.row.login, line.who)
        for line in generate_lines(read.iterate_entries(JournalFilters(entity_id="A1")))
    ]
    assert actual == [
        ("m.petrov", ""),
        ("m.petrov", ""),
        ("m.petrov@gone", ""),
        ("m.petrov@keycloak", "Петрова Анна"),
        ("m.petrov@bank", "Петров из банка"),
    ]


def test_journal_page_shows_renamed_login_with_both_names(officer: Client) -> None:
    user = User.objects.create(username="boss")
    add_entry("support", 1, identity=format_user_identity(user.pk))
    add_entry("old", 2)
    assert "now boss" in open_page(officer)
    assert open_page(officer).count("now boss") == 1


def test_journal_page_shows_unknown_action_actor_and_outcome_unchanged(officer: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT access_journal_words")
    add_entry("a", 1, action="telepathy", actor="robot", outcome="guessed")
    text = open_page(officer)
    for word in ("telepathy", "robot", "guessed"):
        assert word in text, word


@pytest.mark.parametrize("field", ["action", "actor", "outcome"])
def test_journal_table_refuses_unknown_action_actor_or_outcome(field: str, db: None) -> None:
    with pytest.raises(IntegrityError, match="access_journal_words"):
        add_entry("a", 1, **{field: "telepathy"})


def test_line_breaks_in_journal_entry_cannot_forge_another_line(officer: Client) -> None:
    forged = "ok\n2026-11-22 03:00:00 UTC  boss (Иванов): timeline product-instance A1, shown"
    add_entry("a", 1, reason=forged, query="\x1b[2K\u202e")
    file = download_csv(officer)
    for text in (file, open_page(officer)):
        assert "ok\\n2026" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    add_entry("b", 1)
    # The new lines are entry b and the accesses of open_page() and of the second download.
    assert download_csv(officer).count("\n") == file.count("\n") + 3


@pytest.mark.parametrize(
    "token",
    [
        "9999-12-31T23:59:59.999999+00:00~" + "0" * 32,
        "9999-12-31T23:59:59.999999-23:59~" + "0" * 32,
        "0001-01-01T00:00:00+23:59~" + "0" * 32,
    ],
)
def test_journal_page_token_with_earliest_or_latest_moment_is_accepted(
    token: str, officer: Client
) -> None:
    open_page(officer, page=token)


def test_superuser_needs_permission_for_journal(client: Client, db: None) -> None:
    User.objects.filter(username="admin").update(is_superuser=True)
    admin = User.objects.get(username="admin")
    client.force_login(admin)
    assert client.get(JOURNAL).status_code == 403
    admin.groups.add(Group.objects.get(name="privacy"))
    assert client.get(JOURNAL).status_code == 200


@pytest.mark.parametrize(
    "address, link",
    [
        ("/admin/applications/A1/", "/admin/journal/?application=A1"),
        ("/admin/history/product-instance/A1/", "/admin/journal/?application=A1"),
        ("/admin/history/participant-role/R1/", "/admin/journal/?id=R1"),
    ],
)
def test_application_page_links_journal_entries_of_the_application(
    address: str, link: str, client: Client, store: Store
) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    store.add("R1", 0, {"rate": "1"}, 0, entity="participant-role", application="A1")
    for role in ("privacy", "support", "admin"):
        client.force_login(User.objects.get(username=role))
        assert (link in client.get(address).content.decode()) is (role == "privacy"), role
    client.force_login(User.objects.get(username="privacy"))
    assert "support" in client.get(link).content.decode()


def test_export_command_is_refused_when_journal_fails(
    store: Store, tmp_path: Any, settings: Any
) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} RENAME TO gone")
    with pytest.raises(CommandError) as ended:
        call_command("export", "--entity", "product-instance", "--output", str(tmp_path))
    assert ended.value.returncode == 2
    assert "the access journal cannot be written" in str(ended.value)
    assert list(tmp_path.iterdir()) == []


def test_journal_page_shows_entry_as_one_line_with_folded_details(officer: Client) -> None:
    """The folded details show every field of the entry."""
    add_entry(
        "first", reason="Жалоба 17", entity_id="R1", path="/a", moment="2026-01-01T00:00:00+00:00"
    )
    [row] = re.findall(r'<tr class="shown">.*?</tr>', open_page(officer, login="first"), re.DOTALL)
    line, folded = row.split("<details>")
    for word in ("first", "timeline", "R1", "Жалоба 17", "shown"):
        assert word in line, word
    for word in ("R1", "/a", "Жалоба 17", f"GET {API}", "203.0.113.7", "r-first"):
        assert word in folded, word
    assert "203.0.113.7" not in line
