"""The privacy officer reads the journal; nobody else does, and each look into it is an entry."""

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
from annals.access.journal.days import TABLE
from annals.access.journal.read import Filters, lines
from annals.access.journal.words import Action
from annals.access.models import JournalEntry, identity_of
from annals.access.roles import ROLES
from history.models import Person
from tests.access.test_permissions import ENTITY
from tests.db.store import Store

JOURNAL = "/admin/journal/"
API = f"/api/v1/{ENTITY}"


def add(login: str, minutes: float = 1, **given: Any) -> None:
    """A row of a look that many minutes ago."""
    fields: dict[str, Any] = {
        "actor": "person", "address": "203.0.113.7", "request_id": f"r-{login}", "method": "GET",
        "action": "timeline", "entity": "product-instance", "entity_id": "A1", "application": "A1",
        "outcome": "shown", "status": 200, "query": API,
        **dict.fromkeys(("reason", "identity", "path", "moment"), ""),
    }  # fmt: skip
    JournalEntry.objects.create(
        login=login, at=datetime.now(UTC) - timedelta(minutes=minutes), **{**fields, **given}
    )


def day_of(minutes: float) -> None:
    """The partition of a moment, for rows that are older than today."""
    day = (datetime.now(UTC) - timedelta(minutes=minutes)).date()
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE}_{day:%Y%m%d} PARTITION OF {TABLE}"
            f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
        )


@pytest.fixture
def privacy(client: Client, db: None) -> Client:
    day_of(24 * 60)
    client.force_login(User.objects.get(username="privacy"))
    return client


def page(client: Client, **query: object) -> str:
    answer = client.get(JOURNAL, query)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def saved(client: Client, **query: object) -> str:
    """The same as CSV."""
    answer: Any = client.get(JOURNAL, {**query, "format": "csv"})
    return b"".join(answer.streaming_content).decode()


def logins(client: Client, **query: object) -> list[str]:
    """The logins of the rows of a page, in their order, without the officer's own."""
    found = re.findall(
        r'<td class="who"><a href="/admin/journal/\?login=([^"]*)"', page(client, **query)
    )
    return [login for login in found if login != "privacy"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"since": "bad"}, "С"),
        ({"action": "bogus"}, "Действие"),
        ({"since": "2026-11-02", "until": "2026-11-01"}, "По"),
    ],
)
def test_a_wrong_condition_is_said_and_gives_no_file(
    query: dict[str, str], said: str, privacy: Client
) -> None:
    add("m.ivanov")
    shown = page(privacy, **query)
    assert f"Не учтено: {said}." in shown
    assert "format=csv" not in shown
    file = privacy.get(JOURNAL, {**query, "format": "csv"})
    assert (file.status_code, "Не учтено" in file.content.decode()) == (400, True)
    assert "Не учтено" not in page(privacy, since="2026-11-01")


def test_the_first_page_leads_to_it_for_this_role_only(client: Client, db: None) -> None:
    for role in ROLES:
        client.force_login(User.objects.get(username=role))
        shown = JOURNAL in client.get("/admin/").content.decode()
        assert shown is (role == "privacy"), role


def test_newest_first_with_names_and_words(privacy: Client) -> None:
    petrov = User.objects.create(username="m.petrov@bank", last_name="Петров Михаил")
    add("first", 3)
    known = identity_of(petrov.pk)
    add("m.petrov@bank", 2, reason="Жалоба 17", outcome="refused", status=403, identity=known)
    add("audit-system", 1, actor="service", action="search", entity="", entity_id="")
    write.record(Action.EXPORT, "export", "asked by the client", application="A1")
    assert logins(privacy) == [write.login(), "audit-system", "m.petrov%40bank", "first"]
    text = page(privacy)
    for word in (
        *("Петров Михаил", "Жалоба 17", "отказано", "программа", "поиск", "203.0.113.7"),
        *("оператор на сервере", "asked by the client"),
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
def test_filters(query: dict[str, str], expected: list[str], privacy: Client) -> None:
    add("one", 40)
    add("two", 30, entity="participant-role", entity_id="R1")
    add("three", 20, entity="quarantine", entity_id="7", application="", action="quarantine")
    add("four", 10, outcome="refused", status=403, action="compare")
    assert logins(privacy, **query) == expected


def test_days_of_the_filter_include_the_last_one(privacy: Client) -> None:
    privacy.cookies["annals_zone"] = "moscow"
    today = datetime.now(ZoneInfo("Europe/Moscow")).date()
    add("yesterday", 24 * 60)
    add("today", 0)
    assert logins(privacy, since=today, until=today) == ["today"]
    assert logins(privacy, until="вчера") == ["yesterday"]
    assert logins(privacy, until="31.12.9999", since=f"{today:%d.%m}") == ["today"]


def test_pages_go_by_key_and_lose_nothing(privacy: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "PAGE_SIZE", 3)
    at = datetime.now(UTC) - timedelta(minutes=30)
    for number in range(10):
        add(f"l{number}", 30)
    JournalEntry.objects.update(at=at)  # the same moment: the id decides
    found, address = [], f"{JOURNAL}?application=A1"
    for _ in range(4):
        add("new", 0)  # comes in while somebody reads on
        text = html.unescape(privacy.get(address).content.decode())
        found += re.findall(r'<td class="who"><a href="/admin/journal/\?login=(l\d)"', text)
        older = re.search(r'rel="next" href="([^"]*)"', text)
        address = older[1] if older else ""
    assert sorted(found) == [f"l{number}" for number in range(10)]


def test_old_entries_are_read_by_months(privacy: Client) -> None:
    for days in (20, 100, 200, 364):
        day_of(days * 24 * 60)
        add(f"d{days}", days * 24 * 60)
    assert logins(privacy) == ["d20", "d100", "d200", "d364"]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN"
            " (SELECT inhrelid FROM pg_inherits WHERE inhparent = %s::regclass)",
            [TABLE],
        )
        assert (cursor.fetchone() or (0,))[0] >= 4


def test_each_look_into_the_journal_is_in_it(privacy: Client) -> None:
    page(privacy, application="A1", login="somebody")
    row = JournalEntry.objects.get()
    assert (row.login, row.action, row.application) == ("privacy", "journal", "A1")
    assert row.query == "/admin/journal/?login=somebody"
    assert "privacy" in page(privacy)


def test_the_journal_as_a_file(privacy: Client) -> None:
    add("=cmd|' /C calc'!A0", 2, reason="+A1", query="@x")
    add("other", 1, application="A2")
    answer: Any = privacy.get(JOURNAL, {"format": "csv", "application": "A1"})
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    own, row = csv.DictReader(io.StringIO(text))
    assert own["action"] == "journal"  # asked for A1
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


def test_one_file_at_a_time(privacy: Client) -> None:
    """A file may be read slowly, and keeps a thread."""
    first: Any = privacy.get(f"{JOURNAL}?format=csv")
    assert privacy.get(f"{JOURNAL}?format=csv").status_code == 503
    assert b"login" in b"".join(first.streaming_content)
    last: Any = privacy.get(f"{JOURNAL}?format=csv")
    assert b"login" in b"".join(last.streaming_content)


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_is_a_formula(text: str, privacy: Client) -> None:
    add("a", 1, reason=text, entity_id=text, query=text)
    answer: Any = privacy.get(JOURNAL, {"format": "csv"})
    file = b"".join(answer.streaming_content).decode("utf-8-sig")
    for delimiter in (",", ";", "|", "\t"):
        for begin in csv.reader(io.StringIO(file), delimiter=delimiter):
            for found in begin:
                assert not found.strip().startswith(("=", "+", "-", "@", "＝")), found


def test_a_name_belongs_to_one_identity(privacy: Client) -> None:
    Person.objects.create(login="m.petrov", full_name="Петров из банка", kind="person")
    one = User.objects.create(username="m.petrov@bank", last_name="Петров из банка")
    two = User.objects.create(username="m.petrov@keycloak", last_name="Петрова Анна")
    add("m.petrov@bank", 4, identity=identity_of(one.pk))
    add("m.petrov@keycloak", 3, identity=identity_of(two.pk))
    add("m.petrov@gone", 2, identity="user:987654")
    add("m.petrov", 1, actor="service", identity="https://issuer.example#m.petrov")
    add("m.petrov", 0.5, actor="break-glass", identity="user:987655")
    found = [(line.row.login, line.who) for line in lines(read.rows(Filters(entity_id="A1")))]
    assert found == [
        ("m.petrov", ""),
        ("m.petrov", ""),
        ("m.petrov@gone", ""),
        ("m.petrov@keycloak", "Петрова Анна"),
        ("m.petrov@bank", "Петров из банка"),
    ]


def test_a_login_that_was_renamed_is_shown_with_both_names(privacy: Client) -> None:
    user = User.objects.create(username="boss")
    add("support", 1, identity=identity_of(user.pk))
    add("old", 2)
    assert "теперь boss" in page(privacy)
    assert page(privacy).count("теперь") == 1


def test_words_of_a_later_version_are_shown_as_they_are(privacy: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} DROP CONSTRAINT access_journal_words")
    add("a", 1, action="telepathy", actor="robot", outcome="guessed")
    text = page(privacy)
    for word in ("telepathy", "robot", "guessed"):
        assert word in text, word


@pytest.mark.parametrize("field", ["action", "actor", "outcome"])
def test_the_table_takes_known_words_only(field: str, db: None) -> None:
    with pytest.raises(IntegrityError, match="access_journal_words"):
        add("a", 1, **{field: "telepathy"})


def test_an_old_row_cannot_forge_lines(privacy: Client) -> None:
    forged = "ok\n2026-11-22 03:00:00 UTC  boss (Иванов): timeline product-instance A1, shown"
    add("a", 1, reason=forged, query="\x1b[2K\u202e")
    file = saved(privacy)
    for text in (file, page(privacy)):
        assert "ok\\n2026" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    add("b", 1)
    # One line of the row, two of the looks before.
    assert saved(privacy).count("\n") == file.count("\n") + 3


@pytest.mark.parametrize(
    "token",
    [
        "9999-12-31T23:59:59.999999+00:00~" + "0" * 32,
        "9999-12-31T23:59:59.999999-23:59~" + "0" * 32,
        "0001-01-01T00:00:00+23:59~" + "0" * 32,
    ],
)
def test_a_token_at_the_end_of_time(token: str, privacy: Client) -> None:
    page(privacy, page=token)


def test_a_superuser_needs_the_role_too(client: Client, db: None) -> None:
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
def test_one_link_from_the_page_of_an_application(
    address: str, link: str, client: Client, store: Store
) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    store.add("R1", 0, {"rate": "1"}, 0, entity="participant-role", application="A1")
    for role in ("privacy", "support", "admin"):
        client.force_login(User.objects.get(username=role))
        assert (link in client.get(address).content.decode()) is (role == "privacy"), role
    client.force_login(User.objects.get(username="privacy"))
    assert "support" in client.get(link).content.decode()


def test_no_export_without_a_row(store: Store, tmp_path: Any, settings: Any) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} RENAME TO gone")
    with pytest.raises(CommandError) as ended:
        call_command("export", "--entity", "product-instance", "--output", str(tmp_path))
    assert ended.value.returncode == 2
    assert "the access journal cannot be written" in str(ended.value)
    assert list(tmp_path.iterdir()) == []


def test_one_look_is_one_line(privacy: Client) -> None:
    """What else is known of it is folded, and nothing of it is left out."""
    add("first", reason="Жалоба 17", entity_id="R1", path="/a", moment="2026-01-01T00:00:00+00:00")
    [row] = re.findall(r'<tr class="shown">.*?</tr>', page(privacy, login="first"), re.DOTALL)
    line, folded = row.split("<details>")
    for word in ("first", "история", "R1", "Жалоба 17", "показано"):
        assert word in line, word
    for word in ("R1", "/a", "Жалоба 17", f"GET {API}", "203.0.113.7", "r-first"):
        assert word in folded, word
    assert "203.0.113.7" not in line
