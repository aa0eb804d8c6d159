"""Screens that support staff use every day, exports of these screens, and time zones.

The screens are the start page, the pages of a client and of a field, and the timeline with a chart
of days.
"""

import csv
import io
import json
import re
import zipfile
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils.formats import date_format

from history.admin.reading_aids import moment_words
from history.completeness import complete_to
from history.completeness.complete_to import StoreCompleteness
from history.documents.record import ChangeType
from history.models import ArchivedDay, FieldLabel, SealedDay, SearchKey
from history.policy.masking.mask import make_token
from history.store.catalogue import labels
from tests.db.ingest_rows import create_quarantined_version
from tests.db.screens import A1, WHOLE, find_link, read_text
from tests.db.store import T0, Store, record_queries

pytestmark = pytest.mark.django_db

FIELD = f"{A1}field/"


def test_start_page_shows_last_change_of_recently_opened_documents(
    documents: Store, support: Client
) -> None:
    documents.add(
        "R2",
        0,
        {"fullName": "Рожкова Анна", "clientId": "C77"},
        3,
        entity="participant-role",
        application="A1",
    )
    documents.add("A1", 2, {"name": "Ипотека", "rate": "16.5"}, 9, author="m.ivanov")
    assert "Opened recently" not in read_text(support.get("/admin/"))
    support.get(WHOLE)
    page_text = read_text(support.get("/admin/"))
    assert "Ипотека" in page_text
    assert "Иванов Михаил · “Rate” changed from 17.9 % to 16.5 %" in page_text
    documents.add("R2", 1, None, 10, entity="participant-role", type=ChangeType.DELETE)
    assert "Иванов Михаил · deleted" in read_text(support.get("/admin/"))
    tomorrow = Client()
    tomorrow.force_login(User.objects.get(username="support"))
    assert "Opened recently" in read_text(tomorrow.get("/admin/"))
    other_client = Client()
    other_client.force_login(User.objects.get(username="auditor"))
    assert "Opened recently" not in read_text(other_client.get("/admin/"))


def open_application(store: Store, support: Client, number: int) -> None:
    """Store an application, and open its page."""
    store.add(f"B{number}", 0, {"name": f"Ипотека {number}"}, number)
    support.get(f"/admin/applications/B{number}/")


def test_start_page_lists_twenty_recently_opened_documents(store: Store, support: Client) -> None:
    for number in range(22):
        open_application(store, support, number)
    page = support.get("/admin/")
    ids = re.findall(r'href="/admin/applications/(B\d+)/"', page.content.decode())
    assert ids == [f"B{number}" for number in range(21, 1, -1)]
    assert "Ипотека 16" in read_text(page)
    assert "Before that: Application Ипотека 15 , Application Ипотека 14 ," in read_text(page)


@pytest.mark.plain_only("a cluster queries one shard for each document, all in one round trip")
def test_start_page_reads_all_titles_with_one_query_for_each_kind(
    store: Store, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for number in range(22):
        open_application(store, support, number)
        if number in (5, 21):
            attempts = []
            for _ in range(3):  # some answers of the database are cached for seconds
                with record_queries(monkeypatch) as statements:
                    support.get("/admin/")
                attempts.append(len(statements))
            counts.append(min(attempts))
    assert counts[0] == counts[1]


def test_client_page_shows_changes_in_all_applications_of_the_client_in_one_week(
    store: Store, support: Client
) -> None:
    for number in range(3):
        store.add(f"B{number}", 0, {"name": f"Ипотека {number}"}, number)
        store.add(f"B{number}", 1, {"name": f"Ипотека {number}", "rate": "1"}, 60 + number)
        store.add(
            f"P{number}",
            0,
            {"fullName": "Рожкова Анна", "clientId": "C77"},
            30 + number,
            entity="participant-role",
            application=f"B{number}",
        )
        SearchKey.objects.create(
            value="C77", name="clientId", entity="participant-role", id=f"P{number}", day=T0.date()
        )
    week = T0.strftime("%G-W%V")
    page = support.get("/admin/client/", {"q": "C77", "week": week})
    shown_text = re.findall(r'<li class="version[^"]*" id="v(\d+)-([BP]\d)', page.content.decode())
    assert [id for _, id in shown_text[:3]] == ["B2", "B1", "B0"]
    assert len(shown_text) == 9
    assert page.content.decode().count('href="/admin/applications/B1/">Ипотека 1</a>') == 4
    whole = support.get("/admin/applications/B1/").content.decode()
    assert 'href="/admin/client/?q=C77">client C77</a>' in whole
    result = support.get("/admin/history/", {"q": "C77"})
    assert 'href="/admin/client/?q=C77">What happened this week' in result.content.decode()
    before = (T0 - timedelta(days=7)).strftime("%G-W%V")
    empty = support.get("/admin/client/", {"q": "C77", "week": before})
    assert "Nothing changed that week. The first change after it:" in read_text(empty)
    assert f'<a href="/admin/client/?q=C77&amp;week={week}">The first' in empty.content.decode()
    later = (T0 + timedelta(days=14)).strftime("%G-W%V")
    assert "The last change before it:" in read_text(
        support.get("/admin/client/", {"q": "C77", "week": later})
    )
    assert find_link(page.content.decode(), "next").endswith(f"week={before}")
    body = page.content.decode()
    assert body.index("← The week before") < body.index("The week after →")
    nobody = read_text(support.get("/admin/client/", {"q": "nobody"}))
    assert ("Nothing has this number" in nobody, "week" in nobody) == (True, False)
    for number, week in (
        *(("C77", item) for item in ("2026-W99", "1-W1", "9999-W52", f"2026-W{9**30}")),
        *((item, "") for item in ("x" * 400, "a\0b")),
    ):
        query = {"q": number, "week": week}
        assert support.get("/admin/client/", query).status_code == 200


def test_field_page_lists_all_values(store: Store, support: Client) -> None:
    for number, (rate, author) in enumerate(
        [("1", "m.ivanov"), ("2", "m.ivanov"), ("1.0", None), ("2", "m.ivanov"), ("3", "m.ivanov")]
    ):
        store.add("A1", number, {"rate": rate}, number, author=author)
    page = support.get(FIELD, {"path": "/rate"})
    page_text = read_text(page)
    ends = re.findall(r"<span>(.*)</span><svg .*</svg><span>(.*)</span>", page.content.decode())
    assert ends == [("3\N{NO-BREAK SPACE}%", "1\N{NO-BREAK SPACE}%")]
    assert re.search(r"3 % 1 % (\d{4}-\d\d-\d\d ){2}Value", page_text)
    assert page_text.count("A service undid the change of a person.") == 1
    assert page_text.count("Changed back.") == 1
    assert "3 % " in page_text
    assert "1 minute" in page_text
    timeline = support.get(A1).content.decode()
    assert f'href="{FIELD}?path=%2Frate"' in timeline
    assert support.get(FIELD, {"path": "nonsense"}).status_code == 400
    assert support.get("/admin/history/product-instance/NO/field/?path=/a").status_code == 404


def test_field_page_marks_duration_as_inexact_when_a_version_is_missing(
    store: Store, support: Client
) -> None:
    """Versions 2 and 4 are missing. Version 0 is the first version of the document."""
    for number, day in ((0, 0), (1, 1), (3, 3), (5, 6), (6, 7)):
        store.add("A1", number, {"rate": str(number)}, day * 24 * 60)
    page = support.get(FIELD, {"path": "/rate"})
    stood = [line["stood"].replace("\N{NO-BREAK SPACE}", " ") for line in page.context["lines"]]
    assert stood[1:] == ["at least 1 day", "not known", "at most 2 days", "1 day"]
    page_text = read_text(page)
    assert f"{stood[0]}, in force now" in page_text
    assert "only the versions that changed this field" in page_text


def test_field_page_reports_when_two_services_change_a_value_back_and_forth(
    store: Store, support: Client
) -> None:
    for number in range(4):
        rate = str(number % 2)
        store.add("A1", number, {"rate": rate}, number, author=None, client=f"service-{rate}")
    page_text = read_text(support.get(FIELD, {"path": "/rate"}))
    assert page_text.count("Two services change the value back and forth.") == 1


def test_timeline_shows_number_of_versions_of_each_day_in_a_chart_and_a_list(
    store: Store, support: Client
) -> None:
    day = 24 * 60
    store.add("A1", 0, {"n": 0}, 0)
    store.add("A1", 1, {"n": 1}, 1)
    assert '<svg class="bars' not in support.get(A1).content.decode()
    store.add("A1", 3, {"n": 3}, 2 * day)
    page = support.get(A1)
    assert page.content.decode().count("<title>") == 3  # one of the whole picture, two of days
    page_text = read_text(page)
    assert "2026: 2 versions" in page_text
    assert "1 version, versions are missing" in page_text
    assert 'class="lost"' in page.content.decode()
    url = re.findall(r'<li><a href="([^"]*from=[^"]*)"', page.content.decode())[0]
    shown_text = support.get(url.replace("&amp;", "&")).content.decode()
    assert re.findall(r'<li class="version[^"]*" id="v(\d+)', shown_text) == ["3"]


def test_chart_of_days_on_timeline_marks_deletions_and_packed_and_archived_days(
    store: Store, support: Client
) -> None:
    store.add("A1", 0, {"n": 0}, 0)
    store.add("A1", 1, None, 24 * 60, type=2)
    store.add("R1", 0, {"n": 0}, 0, entity="participant-role", application="A1")
    store.add("R1", 1, None, 48 * 60, type=2, entity="participant-role", application="A1")
    table, day = "product_instance_aud", T0.date()
    SealedDay.objects.create(table=table, day=day, packed_at=T0)
    for back in (0, 40, 50):
        ArchivedDay.objects.create(
            table=table,
            day=day - timedelta(days=back),
            rows=1,
            table_bytes=1,
            file_bytes=1,
            digest="",
            files=[],
            archived_at=T0,
        )
    whole, card = (support.get(item) for item in (WHOLE, A1))
    assert "2 versions, packed day, archived day" in read_text(whole)
    # For each of two days in the picture and in the list.
    assert read_text(whole).count("1 version, deletion") == 4
    assert read_text(card).count("1 version, deletion") == 2
    for mark in ("gone", "packed", "archived"):
        assert f'<rect class="{mark}"' in whole.content.decode()
        assert f'<span class="key {mark}">' in whole.content.decode()
    ends = [date_format(day - timedelta(days=back), "j E Y") for back in (50, 40)]
    assert f"Days in the archive: from {ends[0]} to {ends[1]}." in read_text(whole)


def test_moment_page_links_to_end_of_each_day_on_which_application_changed(
    store: Store, support: Client
) -> None:
    for number in range(3):
        store.add("A1", number, {"rate": f"{number}.5"}, number * 24 * 60)
    page = support.get("/admin/at/A1/").content.decode()
    urls = re.findall(r'<li><a href="([^"]*time=[^"]*)"', page)
    assert len(urls) == 3
    page_text = read_text(support.get(urls[1].replace("&amp;", "&")))
    assert f"As it was on {T0 + timedelta(days=1):%Y-%m-%d}, 23:59:59" in page_text
    assert "1.5 % 2.5 %" in page_text


def test_version_page_links_to_nearest_older_and_newer_versions(
    store: Store, support: Client
) -> None:
    for number in (0, 1, 4):
        store.add("A1", number, {"n": number}, number)
    page = support.get(f"{A1}versions/1/").content.decode()
    assert (find_link(page, "next"), find_link(page, "prev")) == (
        f"{A1}versions/0/",
        f"{A1}versions/4/",
    )
    newest = support.get(f"{A1}versions/4/").content.decode()
    assert find_link(newest, "prev") == ""


def test_each_filter_chip_removes_its_condition(documents: Store, support: Client) -> None:
    page = support.get(A1, {"author": "m.ivanov", "type": "CREATE"}).content.decode()
    chips = re.findall(r'<li>([^<]*) <b>([^<]*)</b> <a href="([^"]*)"', page)
    assert [(name, value) for name, value, _ in chips] == [
        ("Person:", "m.ivanov"),
        ("What happened:", "created"),
    ]
    assert chips[0][2] == f"{A1}?type=CREATE"


def test_timeline_folds_versions_without_changes(store: Store, support: Client) -> None:
    for number in range(6):
        store.add("A1", number, {"n": min(number, 2)}, number)
    page = support.get(A1).content.decode()
    folded = page[page.index('class="folded"') : page.index("</details></li>")]
    assert re.findall(r'id="v(\d+)"', folded) == ["5", "4", "3"]
    assert "3 versions without a change of content" in folded
    assert ": changed." not in read_text(support.get(A1, {"as": "note"}))


def test_export_of_timeline_has_what_the_page_shows(documents: Store, support: Client) -> None:
    support.cookies["annals_zone"] = "moscow"
    query = {"author": "x.unknown", "as": "csv"}
    answer = support.get(A1, query)
    assert answer.headers["Content-Disposition"].endswith('"product-instance-A1.csv"')
    rows = list(csv.reader(answer.content.decode("utf-8-sig").splitlines(), delimiter=";"))
    assert rows[0] == ["Address", f"http://testserver{A1}?author=x.unknown"]
    assert rows[1] == ["Filter", "Person: x.unknown"]
    assert rows[2] == ["Time zone", "Europe/Moscow"]
    assert rows[3][0] == "Complete up to"
    assert rows[6][-3:] == ["Field", "Was", "Became"]
    assert rows[7][-3:] == ["Rate", "18.4\N{NO-BREAK SPACE}%", "17.9\N{NO-BREAK SPACE}%"]
    assert len(rows) == 8
    documents.add("A1", 2, {"name": "Ипотека 2", "rate": "16.9", "etag": "1"}, 2)
    for path, name in (("/rate", "Rate"), ("/etag", "Version tag")):
        for form in ("csv", "note"):
            page_text = read_text(support.get(A1, {"path": path, "as": form}))
            assert (name in page_text, "Name" in page_text) == (True, False)
    result = json.loads(support.get(A1, query | {"as": "json"}).content)
    assert result["changes"][0]["Became"] == "17.9\N{NO-BREAK SPACE}%"


def test_timeline_exported_as_note_for_bank_client_describes_changes_in_plain_words(
    documents: Store, support: Client
) -> None:
    support.cookies["annals_zone"] = "moscow"
    documents.add("A1", 2, {"name": "Ипотека", "status": "APPROVED", "stage": "Approved"}, 2)
    documents.add("A1", 3, {"name": "Ипотека", "status": "SIGNING", "stage": "Signing"}, 3)
    documents.add("R1", 1, None, 4, entity="participant-role", type=ChangeType.DELETE)
    page_text = support.get(WHOLE, {"as": "note"}).content.decode()
    assert (page_text.count("Participant Рожков Олег: deleted."), "the whole" in page_text) == (
        1,
        False,
    )
    assert "“Stage / Status” changed from “Approved” to “Signing”." in page_text
    assert (page_text.count("Approved"), page_text.count("Signing")) == (2, 1)
    moment = T0 + timedelta(minutes=1, hours=3)
    changed = "“Rate” changed from 18.4\N{NO-BREAK SPACE}% to 17.9\N{NO-BREAK SPACE}%."
    days = date_format(moment, "j F Y")
    assert page_text.startswith(f"Application A1 Ипотека, {days}\n\n")
    assert f"{days} at {moment:%H:%M}, Application: {changed}" in page_text
    assert "Participant Рожков Олег: created." in page_text
    assert "Time zone: Europe/Moscow" in page_text


def test_login_in_a_field_is_shown_as_full_name_when_form_of_the_label_is_person(
    documents: Store, support: Client
) -> None:
    FieldLabel.objects.create(path="/boss", russian="Начальник", english="Boss", kind="person")
    labels.forget_catalogue()
    for number, boss in enumerate(("m.ivanov", "nobody"), 2):
        documents.add("A1", number, {"boss": boss}, number)
    found_text = support.get(A1).content.decode()
    assert '<span class="text" title="&quot;m.ivanov&quot;">Иванов Михаил</span>' in found_text
    assert '<span class="text" title="&quot;nobody&quot;">nobody</span>' in found_text
    assert ";Boss;Иванов Михаил;nobody" in support.get(A1, {"as": "csv"}).content.decode()
    note = read_text(support.get(A1, {"as": "note"}))
    assert "Boss" not in note  # the note leaves out what does not concern the client
    assert "12:03" not in note  # the note does not even say that these fields changed


def test_timeline_exported_as_note_for_bank_client_describes_added_and_removed_list_items(
    store: Store, support: Client
) -> None:
    long = "Клиент просит перенести сделку на неделю, потому что его нет в городе"
    added = [{"pid": "1", "name": "Полис"}, {"pid": "2", "by": "m.ivanov", "text": long}]
    for number, items in enumerate(([], added, added[1:])):
        store.add("A1", number, {"list": items, "tags": ["x"][:number]}, number)
    page_text = read_text(support.get(A1, {"as": "note"}))
    assert f"item added to “list”: “{long[:60]}…”." in page_text
    assert "item added to “list”: “Полис”." in page_text
    assert "item removed from “list”: “Полис”." in page_text
    assert "item added to “tags”: “x”." in page_text


def test_documents_with_the_same_name_show_their_ids(documents: Store, support: Client) -> None:
    assert "R1" not in read_text(support.get(WHOLE))
    for id in ("R2", "R3"):
        name = {"fullName": "Рожков Олег" if id == "R2" else "Рожкова Анна"}
        documents.add(id, 0, name, 3, entity="participant-role", application="A1")
    for address in (WHOLE, "/admin/at/A1/"):
        page_text = read_text(support.get(address))
        assert "Рожков Олег R1" in page_text
        assert "Рожков Олег R2" in page_text
        assert "R3" not in page_text


def test_exports_convert_moments_in_fields_to_time_zone_of_the_page(
    store: Store, support: Client
) -> None:
    support.cookies["annals_zone"] = "moscow"
    for number, closed in enumerate(
        [
            None,
            "2026-11-26T10:03:00Z",
            "2026-11-26T22:03:00.5",
            "2026-11-26T22:03:00.25",
            "2026-99-99T00:00Z",
        ]
    ):
        store.add("A1", number, {"closedAt": closed}, number)
    local_moments = [
        "2026-11-26 13:03:00",
        "2026-11-27 01:03:00.500000",
        "2026-11-27 01:03:00.250000",
    ]
    csv_rows = support.get(A1, {"as": "csv"}).content.decode()
    note = support.get(A1, {"as": "note"}).content.decode()
    for moment in local_moments:
        assert f";{moment}" in csv_rows
        assert f" {moment}" in note
    assert "UTC" not in note.partition("2026-99-99")[0]
    assert "2026-99-99 00:00 UTC" in note  # not a valid day: shown as stored
    last = "2026-11-26T10:03:00Z"
    store.add("A1", 5, {"closedAt": last}, 5)
    assert "to 2026-11-26 13:03:00" in read_text(support.get("/admin/"))


def test_export_says_where_versions_are_missing(store: Store, support: Client) -> None:
    for number in (0, 4, 5):
        store.add("A1", number, {"n": number}, number)
    create_quarantined_version("A1", 3, first_seen=T0)
    gap = "Versions 1–2 never arrived."
    for address in (A1, WHOLE):
        shown_text = read_text(support.get(address))
        assert gap in shown_text
        assert shown_text.count("Versions are missing before this one") == 1
        changes = json.loads(support.get(address, {"as": "json"}).content)["changes"]
        assert [change["Version"] for change in changes] == ["5", "4", "", "0"]
        assert changes[2].keys() == changes[1].keys()
        page_text = changes[2]["What happened"]
        assert re.fullmatch(f"Version 3 came on .* 12:00 and is in quarantine: .* {gap}", page_text)
        assert list(changes[2].values())[1:3] == ["Application", "A1"]
        rows = support.get(address, {"as": "csv"}).content.decode().splitlines()
        assert [page_text in row for row in rows[-4:]] == [False, False, True, False]
        note = support.get(address, {"as": "note"}).content.decode().splitlines()
        place = note.index(f"Application: {page_text}")
        assert "created" in note[place - 1]
        assert re.match(
            r"Not later than \d+ .* at \d\d:\d\d, Application: .* to 4", note[place + 1]
        )
        with zipfile.ZipFile(io.BytesIO(support.get(address, {"as": "xlsx"}).content)) as book:
            assert gap in book.read("xl/sharedStrings.xml").decode()


def test_timeline_exported_as_note_for_bank_client_hides_iso_dates_and_mask_tokens(
    store: Store, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    upto = datetime(2026, 11, 26, 22, 3, 5, tzinfo=UTC)
    known_values = StoreCompleteness(upto, 0, False, None, retention_start=T0, read_at=upto)
    read = complete_to.read_completeness_and_messages
    monkeypatch.setattr(
        complete_to, "read_completeness_and_messages", lambda kinds: (known_values, read(kinds)[1])
    )
    support.cookies["annals_zone"] = "moscow"
    for number in range(2):
        hidden = make_token(b"key", "/phone", str(number))
        store.add("A1", number, {"phone": hidden}, number * 24 * 60)
    page_text = support.get(A1, {"as": "note"}).content.decode()
    assert ": “phone” changed.\n" in page_text
    assert "Complete up to: 27 November 2026 at 01:03\n" in page_text
    assert not re.search(r"\d{4}-\d\d", page_text)
    assert re.match(r"Application A1, \d+ \w+ \d{4} – \d+ \w+ \d{4}\n\n", page_text)
    assert "2026-11-27 01:03:05" in support.get(A1, {"as": "csv"}).content.decode()


def test_export_escapes_formulas_line_breaks_and_file_names(store: Store, support: Client) -> None:
    store.add("Дом", 0, {"n": "x"}, 0)
    store.add("Дом", 1, {"n": "x,=HYPERLINK()\n1 мая\u2028в 9:00"}, 1)
    address = A1.replace("A1", "Дом")
    assert ";\"x,'=HYPERLINK()" in support.get(address, {"as": "csv"}).content.decode()
    note = support.get(address, {"as": "note"}).content.decode()
    assert "“x,=HYPERLINK() 1 мая в 9:00”" in note
    for suffix, name in (("?as=csv", "Дом.csv"), ("versions/1/?download=1", "Дом-v1.json")):
        header = support.get(f"{address}{suffix}").headers["Content-Disposition"]
        assert header == f"attachment; filename*=utf-8''{quote(f'product-instance-{name}')}"


@pytest.mark.parametrize("form", ["csv", "xlsx"])
def test_export_keeps_phone_numbers_and_negative_numbers(
    form: str, store: Store, support: Client
) -> None:
    texts = ["+79161234567", "+7 (916) 123-45-67", "-5,5", "a; -1\n- b"]
    store.add("A1", 0, {"n": "x"}, 0)
    for number, item in enumerate([*texts, "=1+1"], 1):
        store.add("A1", number, {"n": item}, number)
    answer = support.get(A1, {"as": form})
    if form == "csv":
        lines = list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig")), delimiter=";"))
        cells = {cell for line in lines for cell in line}
    else:
        with zipfile.ZipFile(io.BytesIO(answer.content)) as book:
            assert b"<f>" not in book.read("xl/worksheets/sheet1.xml")
            root = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))  # noqa: S314 - ours
        cells = {"".join(item.itertext()) for item in root}
    assert cells.issuperset(texts)
    assert ("'=1+1" if form == "csv" else "=1+1") in cells


def test_chosen_time_zone_is_remembered_in_a_cookie(documents: Store, support: Client) -> None:
    assert '<meta name="zone" content="">' in support.get(A1).content.decode()
    answer = support.post("/admin/zone/", {"zone": "moscow", "next": A1})
    assert (answer.status_code, answer.headers["Location"]) == (302, A1)
    assert '<meta name="zone" content="Europe/Moscow">' in support.get(A1).content.decode()
    away = support.post("/admin/zone/", {"zone": "no", "next": "https://example.org/"})
    assert away.headers["Location"] == "/"
    odd = support.post("/admin/zone/", {"zone": "no", "next": f"{A1}\r\nX: 1"})
    assert odd.headers["Location"] == f"{A1}%0D%0AX:%201"
    assert support.cookies["annals_zone"].value == "moscow"


@pytest.mark.parametrize(
    "words, expected",
    [
        ("вчера 12:00", "2026-11-25 12:00:00"),
        ("Вчера в 9:05", "2026-11-25 09:05:00"),
        ("позавчера", "2026-11-24 00:00:00"),
        ("today 23:59:59", "2026-11-26 23:59:59"),
        ("12.11.2026 9:30", "2026-11-12 09:30:00"),
        ("1.12", "2025-12-01 00:00:00"),
        ("6 ноября 2026 г. в 9:30", "2026-11-06 09:30:00"),
        ("1 Dec", "2025-12-01 00:00:00"),
        ("вчера в 15:00", "2026-11-25 15:00:00"),
        ("вчера в 15", "2026-11-25 15:00:00"),
        ("позавчера, 7:05:09", "2026-11-24 07:05:09"),
        # The 26th is a Thursday.
        ("вторник", "2026-11-24 00:00:00"),
        ("ВТОРНИК", "2026-11-24 00:00:00"),
        ("во вторник", "2026-11-24 00:00:00"),
        ("во вторник в 9:30", "2026-11-24 09:30:00"),
        ("в прошлый вторник", "2026-11-24 00:00:00"),
        ("в прошлыи\N{COMBINING BREVE} вторник", "2026-11-24 00:00:00"),
        ("в прошлую пятницу в 10", "2026-11-20 10:00:00"),
        ("прошлая среда", "2026-11-25 00:00:00"),
        ("в среду 12:00", "2026-11-25 12:00:00"),
        ("в прошлое воскресенье", "2026-11-22 00:00:00"),
        ("пн", "2026-11-23 00:00:00"),
        ("сб.", "2026-11-21 00:00:00"),
        ("четверг", "2026-11-26 00:00:00"),
        ("в прошлый четверг", "2026-11-19 00:00:00"),
        ("last Tuesday", "2026-11-24 00:00:00"),
        ("on last Tuesday at 15:00", "2026-11-24 15:00:00"),
        ("last thu", "2026-11-19 00:00:00"),
        ("Thursday 00:00", "2026-11-26 00:00:00"),
        ("on Friday, 9:30 pm", "2026-11-20 21:30:00"),
        ("yesterday at 3pm", "2026-11-25 15:00:00"),
        ("yesterday 12 am", "2026-11-25 00:00:00"),
        ("the day before yesterday at 12 pm", "2026-11-24 12:00:00"),
        ("10 November at 9", "2026-11-10 09:00:00"),
        ("в 10 ноября", "2026-11-10 00:00:00"),
        *((item, "None") for item in ("31.2.2026", "вчера 25:00", "завтра", "", "1 нет", "1.1 x")),
        *((item, "None") for item in ("вчера 15", "last", "last week", "вторница", "в", "пн 13pm")),
    ],
)
def test_moment_field_accepts_words_such_as_yesterday(words: str, expected: str) -> None:
    assert str(moment_words.parse_moment(words, date(2026, 11, 26))) == expected


def test_moment_page_limits_number_of_children(documents: Store, support: Client) -> None:
    for number in range(210):
        documents.add(f"T{number:03}", 0, {"name": f"Задача {number}"}, 3, entity="product-task")
    page = support.get("/admin/at/A1/")
    assert page.content.decode().count('class="comparison part"') == 200
    assert "12 more documents are not shown here." in read_text(page)


def test_not_found_page_has_search_box(support: Client) -> None:
    page = support.get("/admin/nothing/")
    assert page.status_code == 404
    assert page.content.decode().count('type="search"') == 1


@pytest.mark.parametrize("environment, expected", [("ru", "ru"), ("en", "en"), ("auto", "en")])
def test_default_language_comes_from_setting(
    support: Client, settings: Any, environment: str, expected: str
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, language=environment)
    headers = {"Accept-Language": "en"}
    assert f'<html lang="{expected}"' in support.get("/admin/", headers=headers).content.decode()
    support.cookies["django_language"] = "ru"
    assert '<html lang="ru"' in support.get("/admin/", headers=headers).content.decode()
