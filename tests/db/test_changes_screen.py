"""The page of changes, the page about one person, and the command `annals changes`."""

import csv
import html
import io
import itertools
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import msgspec
import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import Client

from annals.access.models import JournalEntry
from annals.management import change_listing
from history import timeline
from history.admin.reading_aids import timeline_export
from history.common import clock
from history.completeness import complete_to
from history.kinds.entities import ENTITIES
from history.models import FieldLabel, Person
from history.timeline import budget
from tests.command_shapes import parse_shaped
from tests.db.calls import check_error
from tests.db.store import Store, add_application_of_two_people, minute

ENGLISH = {"Accept-Language": "en"}


@pytest.fixture
def application_of_two_people(store: Store) -> Store:
    """Store an application and a child, changed by two people on one day."""
    Person.objects.create(login="m.ivanov", full_name="Ivan Ivanov")
    add_application_of_two_people(store)
    return store


def open_page(client: Client, address: str, **parameters: Any) -> str:
    client.cookies["django_language"] = "en"
    answer = client.get(f"/admin/{address}", parameters, headers=ENGLISH)
    assert answer.status_code == 200
    return answer.content.decode()


def test_changes_page_of_a_person_groups_versions_by_document(
    application_of_two_people: Store, support: Client
) -> None:
    page = open_page(support, "changes/", author="m.ivanov")
    assert page.count('<li class="version ') == 3
    assert page.count('<section class="document">') == 1
    assert "Person: <b>m.ivanov</b>" in page
    assert 'href="/admin/person/m.ivanov/"' in page
    [entry] = JournalEntry.objects.all()
    assert "author=m.ivanov" in entry.query


def test_changes_page_finds_a_person_by_name(
    application_of_two_people: Store, support: Client
) -> None:
    page = open_page(support, "changes/", author="Ivanov")
    assert page.count('<li class="version ') == 3


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({}, "Enter a person or a service, or a time of at most an hour."),
        ({"author": "stranger"}, "no name or login “stranger”"),
        ({"author": "m.ivanov", "type": "DELETE"}, "Nothing changed in this time"),
        ({"type": "UPDATE"}, "Without a person or a service the time must be at most an hour."),
        ({"author": "m.ivanov", "to": "01.01.2001"}, "2001"),
    ],
)
def test_empty_changes_page_says_why_it_is_empty(
    application_of_two_people: Store, support: Client, parameters: dict[str, str], sentence: str
) -> None:
    assert sentence in open_page(support, "changes/", **parameters)


@pytest.mark.parametrize("address", ["changes/", "history/product-instance/A1/"])
def test_filter_says_so_when_a_service_is_entered_as_person_or_a_person_as_service(
    application_of_two_people: Store, support: Client, address: str
) -> None:
    Person.objects.create(login="top-crm", full_name="CRM", kind="service")
    assert "CRM is a service: enter it under “Service”." in open_page(
        support, address, author="CRM"
    )
    assert "Ivan Ivanov is a person: enter the name under “Person”." in open_page(
        support, address, clientId="Ivanov"
    )


def test_journal_entry_of_changes_page_has_author_as_login_times_in_utc_and_path_without_values(
    application_of_two_people: Store, support: Client
) -> None:
    open_page(
        support,
        "changes/",
        author="Ivan Ivanov",
        path="/holders/[passport=4510 123456]/rate",
        to="yesterday 12:00",
        tz="Europe/Moscow",
        **{"from": f"{minute(0):%d.%m.%Y}"},
    )
    [entry] = JournalEntry.objects.all()
    moscow = ZoneInfo("Europe/Moscow")
    since = datetime(minute(0).year, minute(0).month, minute(0).day, tzinfo=moscow)
    yesterday = datetime.now(moscow).date() - timedelta(days=1)
    until = datetime.combine(yesterday, time(12), moscow)
    for name, value in (
        ("author", "m.ivanov"),
        ("from", since.astimezone(UTC).isoformat()),
        ("to", until.astimezone(UTC).isoformat()),
        ("path", "/holders/*/rate"),
    ):
        assert f"{name}={value}" in re.split("[?&]", entry.query)
    assert "4510" not in entry.query


def test_journal_entry_of_changes_command_has_path_filter_without_values(store: Store) -> None:
    run("--path", "/holders/[passport=4510 123456]/rate", "--author", "m.ivanov")
    [entry] = JournalEntry.objects.all()
    assert entry.query == "changes --author m.ivanov --path /holders/*/rate"


def test_download_of_changes_page_has_versions_of_the_page(
    application_of_two_people: Store, support: Client
) -> None:
    text = open_page(support, "changes/", **{"author": "m.ivanov", "as": "csv"})
    assert len(re.findall("Ivan Ivanov", text)) == 3


@pytest.fixture
def wide_change(store: Store) -> Store:
    """Store an application whose second version changes 101 fields.

    The label of one field, `etag`, has the form "technical".
    """
    names = [f"field{number:03}" for number in range(100)]
    for version in range(2):
        store.add("A1", version, dict.fromkeys([*names, "etag"], version), version)
    return store


def read_changes(answer: HttpResponse, form: str) -> list[dict[str, str]]:
    """Return the rows of changes in an exported file."""
    if form == "json":
        return list(json.loads(answer.content)["changes"])
    if form == "csv":
        text = answer.content.decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text), delimiter=";"))
    else:
        with zipfile.ZipFile(io.BytesIO(answer.content)) as book:
            strings = [
                "".join(item.itertext())
                for item in ElementTree.fromstring(book.read("xl/sharedStrings.xml"))  # noqa: S314 - our own file
            ]
            sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))  # noqa: S314
        rows = sheet.findall(".//{*}row")
        lines = [[strings[int(cell[0].text or "")] for cell in row] for row in rows]
    first = next(number for number, line in enumerate(lines) if line[:1] == ["Time"])
    return [dict(zip(lines[first], line, strict=False)) for line in lines[first + 1 :]]


@pytest.mark.parametrize("form", ["csv", "xlsx", "json"])
@pytest.mark.parametrize("address", ["changes/?author=m.ivanov", "history/product-instance/A1/?"])
def test_export_has_every_change_of_a_version(
    wide_change: Store, support: Client, address: str, form: str
) -> None:
    answer = support.get(f"/admin/{address}&as={form}", headers=ENGLISH)
    rows = [row for row in read_changes(answer, form) if row["Version"] == "1"]
    assert len({row["Field"] for row in rows}) == len(rows) == 101


@pytest.mark.parametrize("form", ["csv", "xlsx", "json"])
def test_export_says_how_many_changes_are_left_out(
    wide_change: Store, support: Client, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_export, "MAX_FILE_CHANGES", 60)
    answer = support.get(f"/admin/changes/?author=m.ivanov&as={form}", headers=ENGLISH)
    rows = read_changes(answer, form)
    assert [row["Version"] for row in rows] == [*["1"] * 60, "", "0"]
    assert rows[60]["Id"] == "A1"
    assert rows[60]["What happened"] == (
        "41 more changes of the version above are not in this file."
    )


def test_timeline_exported_as_note_for_bank_client_says_how_many_changes_are_left_out(
    wide_change: Store, support: Client
) -> None:
    note = open_page(support, "history/product-instance/A1/", **{"as": "note"})
    assert note.count("changed from 0 to 1") + note.count(" / field") == 40
    assert "60 more changes are not shown here." in note


def test_changes_page_counts_all_changed_fields_of_a_version(
    wide_change: Store, support: Client
) -> None:
    page = open_page(support, "changes/", author="m.ivanov")
    names = ", ".join(f"field{number:03}" for number in range(4))
    assert f'<span class="fields">{names} +96</span>' in page


def test_changes_page_names_a_changed_list_once_and_not_each_item(
    store: Store, support: Client
) -> None:
    for version in range(2):
        parts = [{"pid": str(number), "sum": version} for number in range(30)]
        store.add("A1", version, {"tags": [str(version)] * 20, "parts": parts}, version)
    page = open_page(support, "changes/", author="m.ivanov")
    [line] = re.findall(r'<span class="fields">(.*?)</span>', page)
    assert line == "tags +1"


MOSCOW = {"author": "m.ivanov", "from": "24.11.2026", "to": "25.11.2026", "tz": "Europe/Moscow"}


@pytest.fixture
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Set the clock to noon UTC on 26 November 2026, a Thursday, and return this moment."""
    now = datetime(2026, 11, 26, 12, tzinfo=UTC)
    monkeypatch.setattr(clock, "now", lambda: now)
    return now


def read_chips(page: str) -> dict[str, str]:
    """Return the active filters that the page lists, as names and values."""
    return dict(re.findall(r"<li>([^<]*): <b>([^<]*)</b>", page))


def read_bounds(page: str) -> list[str]:
    """Return the texts in the fields `from` and `to` of the filter form."""
    return re.findall(r'name="(?:from|to)" value="([^"]*)"', page)


def read_head(answer: HttpResponse) -> dict[str, str]:
    """Return the names and values at the top of an exported JSON file that describe the file."""
    return dict(json.loads(answer.content)["about"])


def test_span_given_in_words_becomes_exact_moments_in_filter_chips_links_and_exported_files(
    application_of_two_people: Store, support: Client, fixed_clock: datetime
) -> None:
    query = {"author": "m.ivanov", "from": "last Tuesday", "to": "Wednesday 10:00"}
    application_of_two_people.add("B1", 0, {}, fixed_clock - timedelta(days=2), author="m.ivanov")
    support.cookies["annals_zone"] = "moscow"
    page = open_page(support, "changes/", **query)
    moments = ("2026-11-24 00:00 UTC+03:00", "2026-11-25 10:00 UTC+03:00")
    chips = read_chips(page)
    assert (chips["From"], chips["Before"]) == moments
    assert read_bounds(page) == ["last Tuesday", "Wednesday 10:00"]
    links = [html.unescape(link) for link in re.findall(r'href="([^"]*as=json)"', page)]
    [link] = [link for link in links if link.startswith("/admin/changes/")]
    assert "Tuesday" not in link
    [shared] = re.findall(r'data-copy="(http[^"]*/admin/changes/[^"]*)"', page)
    for address in (link, "/admin/changes/?" + urlencode({**query, "as": "json"})):
        head = read_head(support.get(address, headers=ENGLISH))
        assert "Tuesday" not in head["Address"]
        assert head["Filter"].endswith(f"From: {moments[0]}; Before: {moments[1]}")
        assert head["Address"] == html.unescape(shared)
        assert "from=2026-11-24T00%3A00%2B03%3A00" in shared
        parameters = dict(parse_qsl(urlsplit(head["Address"]).query))
        assert read_chips(open_page(support, "changes/", **parameters)) == chips


@pytest.mark.parametrize("choice", ["moscow", "utc"])
def test_span_stays_the_same_in_a_different_time_zone(
    application_of_two_people: Store, support: Client, fixed_clock: datetime, choice: str
) -> None:
    application_of_two_people.add("B1", 0, {}, datetime(2026, 11, 23, 22, tzinfo=UTC))
    support.cookies["annals_zone"] = choice
    shown = {
        "moscow": ("2026-11-24 00:00 UTC+03:00", "2026-11-25 00:00 UTC+03:00", "Europe/Moscow"),
        "utc": ("2026-11-23 21:00 UTC", "2026-11-24 21:00 UTC", "UTC"),
    }
    page = open_page(support, "changes/", **MOSCOW)
    assert page.count('<li class="version ') == 1
    chips = read_chips(page)
    assert (chips["From"], chips["Before"]) == shown[choice][:2]
    # The form gives the same span when it is sent again with the time zone of the page.
    bounds = dict(zip(("from", "to"), read_bounds(page), strict=True))
    again = open_page(support, "changes/", author="m.ivanov", tz=shown[choice][2], **bounds)
    assert read_chips(again) == chips
    head = read_head(support.get("/admin/changes/", {**MOSCOW, "as": "json"}, headers=ENGLISH))
    assert head["Time zone"] == shown[choice][2]
    assert head["Looked at"] == " – ".join(shown[choice][:2])
    assert head["Filter"].endswith(
        "; ".join((f"From: {chips['From']}", f"Before: {chips['Before']}"))
    )


def test_changes_page_reads_moment_with_its_offset_from_utc(
    application_of_two_people: Store, support: Client, fixed_clock: datetime
) -> None:
    for text in ("2026-11-24T00:00+03:00", "24.11.2026 0:00 UTC+03:00", "2026-11-23T21:00Z"):
        page = open_page(support, "changes/", **{"author": "m.ivanov", "from": text})
        assert read_chips(page)["From"] == "2026-11-23 21:00 UTC"
        assert read_bounds(page)[0] == "23.11.2026 21:00"


@pytest.mark.usefixtures("fixed_clock")
def test_page_and_file_without_changes_show_the_span_that_was_read(
    store: Store, support: Client
) -> None:
    window = "2026-11-23 21:00 UTC – 2026-11-24 21:00 UTC"
    assert f"Looked at: {window}." in open_page(support, "changes/", **MOSCOW)
    file = support.get("/admin/changes/", {**MOSCOW, "as": "json"}, headers=ENGLISH)
    assert read_head(file)["Looked at"] == window
    assert "Looked at: 20" in open_page(support, "changes/", author="m.ivanov")


def test_changes_page_marks_both_from_and_before_as_wrong_when_time_zone_is_unknown(
    store: Store, support: Client
) -> None:
    page = open_page(support, "changes/", **{**MOSCOW, "tz": "Mars/Olympus"})
    assert page.count("There is no time zone “Mars/Olympus”.") == 2
    assert "Wrong: From, Before." in page


def test_changes_page_explains_span_in_the_future(store: Store, support: Client) -> None:
    page = open_page(support, "changes/", **{"from": "2090-01-01"})
    assert "The time begins in the future" in page
    assert "must not be later" not in page


def test_page_about_a_person_shows_days_and_services(
    application_of_two_people: Store, support: Client
) -> None:
    application_of_two_people.add("B1", 0, {}, minute(0) - timedelta(days=2), author="m.ivanov")
    page = open_page(support, "person/m.ivanov/")
    assert "<h1>Ivan Ivanov</h1>" in page
    assert "3 versions" in page
    assert "1 version" in page
    assert "clientId=top-crm" in page


def test_page_about_a_person_counts_versions_with_a_moment_in_the_future(
    store: Store, support: Client
) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    ahead_days = django_settings.ANNALS.ahead_days
    last_accepted = today + timedelta(days=ahead_days + 1, microseconds=-1)
    store.add("A1", 0, {"rate": 1}, last_accepted, author="m.early", client="top-robot")
    page = open_page(support, "person/m.early/")
    assert "clientId=top-robot" in page
    assert f"{last_accepted.day} {last_accepted:%B}" in page
    empty = open_page(support, "changes/", author="m.early")
    assert "no version of this time" in empty
    Person.objects.create(login="m.early", full_name="Early Ivan")
    assert "enter a later one in “Before”" in open_page(support, "changes/", author="m.early")


def open_everything(_user: object, _application: object) -> bool:
    return True


def test_changes_page_does_not_offer_counts_when_a_need_to_know_rule_is_set(
    application_of_two_people: Store, support: Client, settings: Any
) -> None:
    promise = "through which services"
    assert promise in open_page(support, "changes/", author="m.ivanov")
    rule = f"{__name__}.open_everything"
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, need_to_know=rule)
    assert promise not in open_page(support, "changes/", author="m.ivanov")
    assert "Days and services are not counted here" in open_page(support, "person/m.ivanov/")


def test_timeline_links_to_page_of_person_and_to_changes_of_the_day(
    application_of_two_people: Store, support: Client
) -> None:
    page = open_page(support, "history/product-instance/A1/")
    assert 'href="/admin/person/m.ivanov/"' in page
    assert "/admin/changes/?author=m.ivanov&amp;from=" in page


def test_api_answer_with_changes_masks_marked_field_and_api_refuses_path_below_the_field(
    application_of_two_people: Store, auditor: Client
) -> None:
    FieldLabel.objects.create(path="/rate", russian="rate", sensitive=True)
    window = {"author": "m.ivanov", "from": minute(-9).isoformat(), "to": minute(9).isoformat()}
    answer = auditor.get("/api/v1/changes", window).json()["data"]["history"]
    assert [entry["entity"]["rate"] in (0, 1, 2) for entry in answer] == [False, False, False]
    inside = auditor.get("/api/v1/changes", {**window, "path": "/rate/part"})
    assert inside.status_code == 400


def run_both(*words: str) -> tuple[str, str]:
    """Run `annals changes`, and return its standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    call_command("changes", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def run(*words: str) -> str:
    return run_both(*words)[0]


def test_changes_command_prints_text_json_and_csv(application_of_two_people: Store) -> None:
    words = (
        "--author",
        "m.ivanov",
        "--from",
        minute(-9).isoformat(),
        "--to",
        minute(9).isoformat(),
    )
    lines = run(*words).splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("/rate")
    objects = [parse_shaped("changes", line) for line in run(*words, "--json").splitlines()]
    assert [entry["version"] for entry in objects] == [2, 1, 0]
    assert objects[0]["applicationTitle"] == "Loan"
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv"))))
    assert (rows[0]["version"], rows[0]["path"], rows[0]["new"]) == ("2", "/rate", "2")
    assert "changes --from" in JournalEntry.objects.all()[0].query


def test_changes_csv_has_empty_cell_for_missing_value_and_null_for_json_null(store: Store) -> None:
    documents = ({"a": 1, "b": None}, {"b": 2, "c": None}, {"b": 2})
    for number, document in enumerate(documents):
        store.add("A1", number, document, number, author="m.ivanov")
    window = ("--from", minute(-9).isoformat(), "--to", minute(9).isoformat())
    rows = csv.DictReader(io.StringIO(run(*window, "--order", "desc", "--csv")))
    values = [(row["version"], row["path"], row["old"], row["new"]) for row in rows]
    assert sorted(values) == [
        ("0", "", "", ""),
        ("1", "/a", "1", ""),
        ("1", "/b", "null", "2"),
        ("1", "/c", "", "null"),
        ("2", "/c", "null", ""),
    ]


def test_text_output_of_changes_command_has_time_zone_service_name_and_application(
    application_of_two_people: Store,
) -> None:
    Person.objects.create(login="top-crm", full_name="CRM", kind="service")
    window = ("--from", minute(-9).isoformat(), "--to", minute(9).isoformat())
    out, err = run_both(*window, "--author", "m.prygunov")
    first = out.splitlines()[0]
    moment = f"{minute(2):%Y-%m-%d %H:%M:%S} UTC"
    assert first.split()[:5] == [*moment.split(), "m.prygunov", "CRM"]
    assert "product-task T1 of A1 " in first
    since, until = (f"{minute(number):%Y-%m-%d %H:%M:%S} UTC" for number in (-9, 9))
    assert err == f"Listed 3 versions from {since} to {until}.\n"
    assert "product-instance A1  " in run(*window, "--author", "m.ivanov")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--author", "nobody"), "--author nobody: the list of people and services does not"),
        (("--author", "Ivanov Ivan"), "This is a name. The login is: m.ivanov"),
        (("--author", "top-crm"), "--author top-crm: this is a service; use --client-id."),
        (("--client-id", "CRM"), "This is a name. The login is: top-crm"),
        (("--client-id", "m.ivanov"), "--client-id m.ivanov: this is a person; use --author."),
    ],
)
def test_changes_command_that_lists_nothing_explains_a_wrong_author_or_client_id(
    application_of_two_people: Store, words: tuple[str, str], sentence: str
) -> None:
    Person.objects.create(login="top-crm", full_name="CRM", kind="service")
    out, err = run_both("--from", minute(-9).isoformat(), "--to", minute(9).isoformat(), *words)
    assert out == ""
    assert "Listed 0 versions from" in err
    assert sentence in err


def test_changes_command_refuses_blank_login() -> None:
    with pytest.raises(CommandError, match="--author: it is empty"):
        run("--author", " ")


@pytest.fixture
def twelve_applications(store: Store) -> Store:
    """Store 12 applications with six versions each, within a day and a half.

    Version 3 of each application changes the rate.
    """
    for number in range(12):
        for version in range(6):
            document = {"rate": version // 3, "stage": version}
            store.add(f"N{number}", version, document, number * 200 + version)
    return store


LONG_SPAN = ("--from", minute(-60).isoformat(), "--to", minute(2_900).isoformat())


def list_entries(lines: str) -> list[tuple[str, int]]:
    return [(entry["id"], entry["version"]) for entry in map(json.loads, lines.splitlines())]


def use_short_pages_and_complete_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """End each page of changes after one slice of time, and report the store as complete.

    An ascending list of an incomplete store would stop before the end of LONG_SPAN.
    """
    monkeypatch.setattr(budget, "PAGE_SECONDS", 0)
    state = replace(complete_to.read_completeness(ENTITIES), complete_to=minute(2_900))
    monkeypatch.setattr(complete_to, "read_completeness", lambda _kinds: state)


@pytest.mark.plain_only("on a cluster its hundreds of short pages take minutes")
@pytest.mark.parametrize("order", ["desc", "asc"])
def test_changes_command_accepts_long_time_span_without_author(
    twelve_applications: Store, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_short_pages_and_complete_store(monkeypatch)
    expected = [(f"N{number}", 3) for number in range(12)]
    lines = run(*LONG_SPAN, "--path", "/rate", "--json", "--order", order)
    assert list_entries(lines) == (expected if order == "asc" else expected[::-1])
    assert len(run(*LONG_SPAN, "--order", order).splitlines()) == 72


@pytest.mark.plain_only("on a cluster its hundreds of short pages take minutes")
@pytest.mark.parametrize("order", ["desc", "asc"])
def test_changes_command_continues_from_printed_token_after_interruption(
    twelve_applications: Store, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call of the command is interrupted in its second page, and prints a token. The next call
    continues from this token."""
    use_short_pages_and_complete_store(monkeypatch)
    words = (*LONG_SPAN, "--path", "/rate", "--json", "--order", order)
    fetch, token, entries = timeline.fetch_changes_page, None, []
    interruptions = 0
    while True:
        pages = itertools.count()

        def fetch_or_interrupt(
            *args: Any, pages: Iterator[int] = pages, **options: Any
        ) -> timeline.ChangesPage:
            if next(pages) == 1:
                raise KeyboardInterrupt
            return fetch(*args, **options)

        monkeypatch.setattr(timeline, "fetch_changes_page", fetch_or_interrupt)
        out, err = io.StringIO(), io.StringIO()
        more = ("--page-token", token) if token else ()
        with suppress(SystemExit):
            call_command("changes", *words, *more, stdout=out, stderr=err)
        entries += list_entries(out.getvalue())
        token = (re.findall(r"To continue: --page-token (v1:\S+)", err.getvalue()) or [None])[0]
        if token is None:
            break
        interruptions += 1
    expected = [(f"N{number}", 3) for number in range(12)]
    assert entries == (expected if order == "asc" else expected[::-1])
    assert interruptions > 2


def test_progress_of_changes_command_counts_the_minutes_of_the_span_that_were_read(
    twelve_applications: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "PAGE_SECONDS", 0)
    shown: list[tuple[str, int | None]] = []
    steps: list[int] = []

    @contextmanager
    def record(label: str, total: int | None, _out: Any) -> Iterator[Callable[[int], None]]:
        shown.append((label, total))
        yield steps.append

    monkeypatch.setattr(change_listing, "show_progress", record)
    run(*LONG_SPAN, "--path", "/nothing")
    assert shown == [("changes, minutes of the span", 2_960)]
    assert sum(steps) == 2_960
    assert len(steps) > 3
    assert min(steps) >= 0


def test_error_of_changes_call_explains_how_to_read_a_longer_time_span(
    store: Store, auditor: Client
) -> None:
    window = {"from": minute(0).isoformat(), "to": minute(61).isoformat(), "path": "/rate"}
    error = check_error(auditor.get("/api/v1/changes", window), 400, "bad_parameter")
    assert error["parameter"] == "author"
    assert "hour by hour, or run `annals changes`" in error["message"]
