"""What the timelines, the start page and the page of an application show."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from annals.access import sessions
from annals.access.models import JournalEntry
from history.documents.record import ChangeType
from history.kinds.entities import ROOT
from history.models import FieldLabel
from history.store.catalogue import labels
from ingest.models import Ledger
from tests.db.ingest_rows import create_ledger_row
from tests.db.screens import A1, WHOLE, find_link, iterate_pages, read_text
from tests.db.store import Store


def test_timeline_shows_author_moment_and_changes_of_versions(
    documents: Store, support: Client
) -> None:
    page = support.get(A1)
    page_text = read_text(page)
    assert page.status_code == 200
    assert page_text.index("version 1") < page_text.index("version 0")
    assert "Иванов Михаил" in page_text
    assert "Обмен с CRM" in page_text
    assert "x.unknown unknown login" in page_text
    assert "Rate 18.4 % 17.9 %" in page_text
    assert "1 change" in page_text
    assert 'data-when="clock"' in page.content.decode()


def test_timeline_reports_missing_versions_and_older_versions_not_in_the_store(
    store: Store, support: Client
) -> None:
    store.add("A1", 2, {"a": 1}, 0)
    store.add("A1", 5, {"a": 2}, 1)
    store.add("A1", 7, {"a": 3}, 2)
    store.add("A2", 0, "null", 0, type=ChangeType.CREATE)
    store.add("A2", 1, "null", 1, type=ChangeType.DELETE, author=None)
    page_text = read_text(support.get(A1))
    assert "Versions 3–4 never arrived" in page_text
    assert "Version 6 never arrived" in page_text
    assert "Older versions are not in the store" in page_text
    page_text = read_text(support.get("/admin/history/product-instance/A2/"))
    assert "deleted" in page_text
    assert "created" in page_text


def test_timeline_folds_and_counts_technical_fields(store: Store, support: Client) -> None:
    FieldLabel.objects.update_or_create(
        entity="product-instance",
        path="/etag",
        defaults={"russian": "Метка", "english": "Tag", "kind": "technical"},
    )
    labels.forget_catalogue()
    store.add("A1", 0, {"etag": "1", "a": 1}, 0)
    store.add("A1", 1, {"etag": "2", "a": 1}, 1)
    page_text = read_text(support.get(A1))
    assert "only technical fields + 1 technical" in page_text
    assert "Tag 1 2" in page_text


def test_timeline_folds_all_but_twelve_changes_of_a_version(store: Store, support: Client) -> None:
    store.add("A1", 0, {f"f{n}": 0 for n in range(40)}, 0)
    store.add("A1", 1, {f"f{n}": 1 for n in range(40)}, 1)
    page_text = read_text(support.get(A1))
    assert "40 changes" in page_text
    assert "28 more changes" in page_text


def test_snapshot_json_and_download_keep_every_digit(store: Store, support: Client) -> None:
    store.add("A1", 0, '{"n": 12345678901234567890.10, "s": "</pre><b>"}', 0)
    page = support.get(f"{A1}versions/0/?as=json")
    assert "12345678901234567890.10" in page.content.decode()
    assert "</pre><b>" not in page.content.decode()
    file = support.get(f"{A1}versions/0/?download=1")
    assert file.headers["Content-Type"].startswith("application/json")
    assert file.headers["Content-Disposition"] == (
        'attachment; filename="product-instance-A1-v0.json"'
    )
    assert '"n": 12345678901234567890.10' in file.content.decode()


def test_link_to_a_version_still_opens_it_after_newer_versions_are_stored(
    documents: Store, support: Client
) -> None:
    match = re.search(r'class="version-number" href="([^"]+)"', support.get(A1).content.decode())
    assert match
    assert match[1].startswith(f"{A1}versions/1/?at=")
    for number in range(2, 60):
        documents.add("A1", number, {"name": "Ипотека", "rate": str(number)}, number)
    page = support.get(match[1].replace("&amp;", "&"))
    page_text = read_text(page)
    assert "Rate 18.4 % 17.9 %" in page_text
    assert "<title>Ипотека · version 1 | Annals</title>" in page.content.decode()
    assert "The whole document: 2 fields" in page_text
    tab = re.search(r'href="([^"]+)">JSON</a>', page.content.decode())
    assert tab
    assert '>"17.9"<' in support.get(tab[1].replace("&amp;", "&")).content.decode()


def test_browser_titles_of_pages_differ(documents: Store, support: Client) -> None:
    pages = (A1, WHOLE, f"{A1}state/", "/admin/at/A1/", f"{A1}versions/0/", f"{A1}versions/1/")
    bodies = [support.get(item).content.decode() for item in (*pages, f"{A1}compare/?from=0&to=1")]
    titles = [re.findall("<title>(.*?)</title>", body)[0] for body in bodies]
    assert len(set(titles)) == len(titles)
    assert all(title.startswith("Ипотека · ") for title in titles)


@pytest.mark.parametrize("data, count", [({"n": 1}, 1), ({"name": "A1"}, 1), ({"name": "X"}, 2)])
def test_heading_shows_the_id_once(
    data: dict[str, object], count: int, store: Store, support: Client
) -> None:
    """If the document has no name, the id is its title. Otherwise the id follows the name."""
    store.add("A1", 0, data, 0)
    for address in (A1, WHOLE, f"{A1}state/"):
        page = support.get(address).content.decode()
        line = page[page.index('<div class="subject-line">') :]
        heading = re.sub("<button.*", "", line[: line.index("</div>")])
        assert re.sub("<[^>]*>", " ", heading).split().count("A1") == min(count, 1)
        assert len(re.findall('<h1>|class="ident"', heading)) == count
    recent = support.get("/admin/").content.decode()
    assert ('class="ident quiet">A1' in recent) is (count == 2)


def test_start_page_of_administrator_links_to_each_list_once(db: None, client: Client) -> None:
    client.force_login(User.objects.get(username="admin"))
    client.cookies["django_language"] = "en"
    page = client.get("/admin/").content.decode()
    assert "Lists" in page
    for address in ("/admin/quarantine/", "/admin/history/person/", "/admin/auth/user/"):
        assert page.count(f'href="{address}"') == 1
    assert "/admin/ingest/quarantined/" not in page
    assert 'class="module"' not in page
    assert "/admin/ingest/quarantined/" in client.get("/admin/quarantine/").content.decode()


def test_timeline_pages_link_to_older_and_newer_pages(store: Store, support: Client) -> None:
    for number in range(120):
        store.add("A1", number, {"n": number}, number)
    *_, page = pages = list(iterate_pages(support, A1))
    seen = [re.findall(r'id="v(\d+)"', page) for page in pages]
    assert [len(numbers) for numbers in seen] == [50, 50, 20]
    assert [int(number) for numbers in seen for number in numbers] == list(range(119, -1, -1))
    assert "This is where the stored history begins" in page
    back = find_link(page, "prev")
    middle = support.get(back).content.decode()
    assert re.findall(r'id="v(\d+)"', middle) == seen[1]
    # The link to older versions is on the left.
    assert middle.index('rel="next"') < middle.index('rel="prev"')
    page_text = read_text(support.get(f"{A1}?page=v1:nonsense"))
    assert "The page in the address is not valid. The newest versions are shown." in page_text
    assert "Newer" not in page_text
    first = find_link(middle, "prev")
    assert re.findall(r'id="v(\d+)"', support.get(first).content.decode()) == seen[0]


def test_page_shows_how_complete_the_store_is(documents: Store, support: Client) -> None:
    now = datetime.now(UTC)
    twin, row = (
        create_ledger_row(topic, end_known_at=now, newest_timestamp=now)
        for topic in reversed(ROOT.topics)
    )
    assert twin.topic != row.topic
    assert "Everything up to" in read_text(support.get(A1))
    assert "notice" not in support.get(A1).content.decode()
    before = now - timedelta(minutes=2)
    for seen, sentence in (
        (now, "Kafka does not answer at the moment"),
        (before, "No consumer reads messages at the moment"),
    ):
        Ledger.objects.update(checked_at=seen, end_known_at=before)
        assert sentence in read_text(support.get(A1))
    Ledger.objects.update(checked_at=now, end_known_at=now)
    row.high_watermark = 14
    row.newest_timestamp = now - timedelta(hours=1)
    row.save()
    assert "Not all sent messages have been read" in read_text(support.get(A1))
    row.halted_at = now
    row.save()
    assert "Reading of messages has stopped" in read_text(support.get(A1))


def test_application_page_lists_versions_of_application_and_children_by_moment(
    documents: Store, support: Client
) -> None:
    documents.add("C1", 0, {"brand": "Лада", "model": "Веста"}, 3, entity="product-car")
    documents.add("C1", 1, "null", 4, entity="product-car", type=ChangeType.DELETE)
    documents.add("R9", 0, {"fullName": "Чужой"}, 4, entity="participant-role", application="A9")
    page = support.get(WHOLE)
    page_text = read_text(page)
    expected_texts = (
        "Car Лада Веста version 0",
        "Рожков Олег version 0",
        "version 1 changed",
        "Application version 0",
    )
    order = [page_text.index(text) for text in expected_texts]
    assert order == sorted(order)
    assert "Чужой" not in page_text
    body = page.content.decode()
    assert 'href="/admin/history/participant-role/R1/"' in body
    assert "<s>Лада Веста</s>" in body
    assert 'aria-current="page">Whole application' in body
    child = support.get("/admin/history/participant-role/R1/").content.decode()
    assert f'href="{WHOLE}"' in child


def test_deleted_document_keeps_its_name(documents: Store, support: Client) -> None:
    """The newest version of a deleted document has no snapshot. So its pages and search results
    show the name from an earlier version."""
    documents.add("R1", 1, "null", 3, entity="participant-role", type=ChangeType.DELETE)
    documents.add("R1", 2, "null", 4, entity="participant-role", type=ChangeType.DELETE)
    documents.add("R2", 0, "null", 4, entity="participant-role", type=ChangeType.DELETE)
    own_url = "/admin/history/participant-role/R1/"
    for address in (
        own_url,
        f"{own_url}state/",
        f"{own_url}versions/2/",
        f"{own_url}compare/?from=0&to=2",
    ):
        assert "<h1>Рожков Олег</h1>" in support.get(address).content.decode(), address
    body = support.get(WHOLE).content.decode()
    assert "<s>Рожков Олег</s>" in body
    assert "<s>R2</s>" in body
    found_text = read_text(support.get("/admin/history/", {"q": "R1 R2"}))
    assert "Рожков Олег" in found_text


def test_application_page_folds_many_children_of_one_kind(
    documents: Store, support: Client
) -> None:
    for number in range(40):
        documents.add(f"T{number:02}", 0, {"name": f"Задача {number}"}, 3, entity="product-task")
    documents.add("H1", 0, {"type": "Квартира"}, 3, entity="realty-info")
    page = support.get(WHOLE).content.decode()
    shown_text = page[: page.index('class="toolbar"')]
    assert "34 more" in shown_text
    folded = shown_text[shown_text.index("<details>") : shown_text.index("</details>")]
    assert folded.count("/admin/history/product-task/") == 34
    assert shown_text.index("</details>") < shown_text.index("Квартира")
    assert shown_text.count('<span class="kind">Task</span>') == 1


def test_application_page_opens_when_only_children_are_stored(
    store: Store, support: Client
) -> None:
    store.add("R1", 0, {"fullName": "Рожков Олег"}, 2, entity="participant-role", application="A5")
    page = support.get("/admin/applications/A5/")
    assert page.status_code == 200
    assert "Рожков Олег" in read_text(page)
    assert support.get("/admin/applications/A6/").status_code == 404


def test_application_page_is_filtered_and_paged(store: Store, support: Client) -> None:
    for number in range(40):
        store.add("A1", number, {"n": number}, number, author="a")
        store.add("R1", number, {"n": number}, number, entity="participant-role", author="b")
    first = support.get(f"{WHOLE}?author=b").content.decode()
    assert len(re.findall(r'id="v\d+-R1"', first)) == 40
    assert 'id="v0-A1"' not in first
    page = support.get(WHOLE).content.decode()
    next_text = support.get(find_link(page, "next")).content.decode()
    assert len(re.findall(r'<li class="version', page + next_text)) == 80
    assert "This is where the stored history begins" in next_text


def find_poll_url(page: str) -> str:
    result = re.search(r'data-newer="([^"]*)"', page)
    assert result
    return result[1].replace("&amp;", "&")


def test_poll_counts_newer_versions_and_writes_no_journal_entry(
    documents: Store, support: Client
) -> None:
    document_url = find_poll_url(support.get(A1).content.decode())
    application_url = find_poll_url(support.get(WHOLE).content.decode())
    entry_count = JournalEntry.objects.count()
    assert support.get(document_url).json() == support.get(application_url).json() == {"text": ""}
    documents.add("A1", 2, {"name": "Ипотека", "rate": "16.5"}, 9)
    documents.add(
        "R7", 0, {"fullName": "Рожкова Анна"}, 10, entity="participant-role", application="A1"
    )
    assert support.get(document_url).json() == {"text": "1 newer version: show"}
    assert support.get(application_url).json() == {"text": "2 newer versions: show"}
    assert JournalEntry.objects.count() == entry_count


def test_newer_versions_are_counted_only_for_documents_that_the_session_opened(
    documents: Store, support: Client
) -> None:
    query = {"since": "2020-01-01T00:00:00Z"}
    assert support.get(f"{A1}newer/", query).status_code == 404
    support.get(A1)
    for since, status in ((query["since"], 200), ("9999-12-31T23:59:59.999999Z", 200), ("x", 404)):
        assert support.get(f"{A1}newer/", {"since": since}).status_code == status


def test_poll_for_newer_versions_does_not_prolong_session(
    documents: Store, support: Client
) -> None:
    poll = find_poll_url(support.get(A1).content.decode())
    session = support.session
    session[sessions.LAST_SEEN] = seen = time.time() - 1000
    session.save()
    assert support.get(poll, headers={sessions.POLL: "1"}).status_code == 200
    assert support.session[sessions.LAST_SEEN] == seen
    support.get(A1)
    assert support.session[sessions.LAST_SEEN] > seen


def test_filtered_timeline_does_not_poll_for_newer_versions(
    documents: Store, support: Client
) -> None:
    assert "data-newer" not in support.get(A1, {"author": "x.unknown"}).content.decode()
