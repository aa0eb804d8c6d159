"""The support screens through Django's test client: what they say."""

import re
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from annals.access import sessions
from annals.access.models import JournalEntry
from history import labels
from history.entities import ROOT
from history.models import FieldLabel
from history.record import ChangeType
from ingest.models import Ledger
from tests.db.noted import ledger_row
from tests.db.screens import A1, WHOLE, link, text, walk
from tests.db.store import Store


def test_a_timeline_says_who_when_and_what(documents: Store, support: Client) -> None:
    page = support.get(A1)
    said = text(page)
    assert page.status_code == 200
    assert said.index("версия 1") < said.index("версия 0")
    assert "Иванов Михаил" in said
    assert "Обмен с CRM" in said
    assert "x.unknown неизвестный логин" in said
    assert "Ставка 18,4 % 17,9 %" in said
    assert "1 изменение" in said
    assert 'data-when="clock"' in page.content.decode()


def test_gaps_and_beginnings_are_shown(store: Store, support: Client) -> None:
    store.add("A1", 2, {"a": 1}, 0)
    store.add("A1", 5, {"a": 2}, 1)
    store.add("A1", 7, {"a": 3}, 2)
    store.add("A2", 0, "null", 0, type=ChangeType.CREATE)
    store.add("A2", 1, "null", 1, type=ChangeType.DELETE, author=None)
    said = text(support.get(A1))
    assert "Версии 3–4 не поступали" in said
    assert "Версия 6 не поступала" in said
    assert "Более ранних версий в хранилище нет" in said
    said = text(support.get("/admin/history/product-instance/A2/"))
    assert "удаление" in said
    assert "создание" in said


def test_technical_fields_are_folded_and_counted(store: Store, support: Client) -> None:
    FieldLabel.objects.update_or_create(
        entity="product-instance", path="/etag", defaults={"russian": "Метка", "kind": "technical"}
    )
    labels.forget()
    store.add("A1", 0, {"etag": "1", "a": 1}, 0)
    store.add("A1", 1, {"etag": "2", "a": 1}, 1)
    said = text(support.get(A1))
    assert "только технические поля + 1 техническое" in said
    assert "Метка 1 2" in said


def test_many_changes_are_folded(store: Store, support: Client) -> None:
    store.add("A1", 0, {f"f{n}": 0 for n in range(40)}, 0)
    store.add("A1", 1, {f"f{n}": 1 for n in range(40)}, 1)
    said = text(support.get(A1))
    assert "40 изменений" in said
    assert "ещё 28 изменений" in said


def test_a_snapshot_keeps_every_digit(store: Store, support: Client) -> None:
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


def test_a_version_has_an_address_of_its_own(documents: Store, support: Client) -> None:
    own = re.search(r'class="version-number" href="([^"]+)"', support.get(A1).content.decode())
    assert own
    assert own[1].startswith(f"{A1}versions/1/?at=")
    for number in range(2, 60):
        documents.add("A1", number, {"name": "Ипотека", "rate": str(number)}, number)
    page = support.get(own[1].replace("&amp;", "&"))
    said = text(page)
    assert "Ставка 18,4 % 17,9 %" in said
    assert "<title>Ипотека · версия 1 | Annals</title>" in page.content.decode()
    assert "Документ целиком: 2 поля" in said
    tab = re.search(r'href="([^"]+)">JSON</a>', page.content.decode())
    assert tab
    assert '>"17.9"<' in support.get(tab[1].replace("&amp;", "&")).content.decode()


def test_each_kind_of_page_has_its_own_window_title(documents: Store, support: Client) -> None:
    pages = (A1, WHOLE, f"{A1}state/", "/admin/at/A1/", f"{A1}versions/0/", f"{A1}versions/1/")
    bodies = [support.get(one).content.decode() for one in (*pages, f"{A1}compare/?from=0&to=1")]
    titles = [re.findall("<title>(.*?)</title>", body)[0] for body in bodies]
    assert len(set(titles)) == len(titles)
    assert all(title.startswith("Ипотека · ") for title in titles)


@pytest.mark.parametrize("data, count", [({"n": 1}, 1), ({"name": "A1"}, 1), ({"name": "X"}, 2)])
def test_the_id_is_once_in_a_heading(
    data: dict[str, object], count: int, store: Store, support: Client
) -> None:
    """As its title where the document has no other, else after the title."""
    store.add("A1", 0, data, 0)
    for address in (A1, WHOLE, f"{A1}state/"):
        page = support.get(address).content.decode()
        line = page[page.index('<div class="subject-line">') :]
        shown = re.sub("<button.*", "", line[: line.index("</div>")])
        assert re.sub("<[^>]*>", " ", shown).split().count("A1") == min(count, 1)
        assert len(re.findall('<h1>|class="ident"', shown)) == count
    recent = support.get("/admin/").content.decode()
    assert ('class="ident quiet">A1' in recent) is (count == 2)


def test_the_first_page_of_an_administrator_has_each_list_once(db: None, client: Client) -> None:
    client.force_login(User.objects.get(username="admin"))
    client.cookies["django_language"] = "en"
    page = client.get("/admin/").content.decode()
    assert "Lists" in page
    for address in ("/admin/quarantine/", "/admin/history/person/", "/admin/auth/user/"):
        assert page.count(f'href="{address}"') == 1
    assert "/admin/ingest/quarantined/" not in page
    assert 'class="module"' not in page
    assert "/admin/ingest/quarantined/" in client.get("/admin/quarantine/").content.decode()


def test_pages_lead_to_the_last_and_back(store: Store, support: Client) -> None:
    for number in range(120):
        store.add("A1", number, {"n": number}, number)
    *_, page = pages = list(walk(support, A1))
    seen = [re.findall(r'id="v(\d+)"', each) for each in pages]
    assert [len(numbers) for numbers in seen] == [50, 50, 20]
    assert [int(number) for numbers in seen for number in numbers] == list(range(119, -1, -1))
    assert "Начало сохранённой истории" in page
    back = link(page, "prev")
    middle = support.get(back).content.decode()
    assert re.findall(r'id="v(\d+)"', middle) == seen[1]
    assert middle.index('rel="next"') < middle.index('rel="prev"')  # the older ones are on the left
    said = text(support.get(f"{A1}?page=v1:nonsense"))
    assert "В адресе страницы ошибка. Показаны самые новые версии." in said
    assert "Более новые" not in said
    first = link(middle, "prev")
    assert re.findall(r'id="v(\d+)"', support.get(first).content.decode()) == seen[0]


def test_a_page_says_how_complete_it_is(documents: Store, support: Client) -> None:
    now = datetime.now(UTC)
    twin, row = (
        ledger_row(topic, end_known_at=now, newest_timestamp=now) for topic in reversed(ROOT.topics)
    )
    assert twin.topic != row.topic
    assert "Здесь всё, что отправлено до" in text(support.get(A1))
    assert "notice" not in support.get(A1).content.decode()
    before = now - timedelta(minutes=2)
    for seen, said in ((now, "Kafka сейчас не отвечает"), (before, "Annals сейчас не получает")):
        Ledger.objects.update(checked_at=seen, end_known_at=before)
        assert said in text(support.get(A1))
    Ledger.objects.update(checked_at=now, end_known_at=now)
    row.high_watermark = 14
    row.newest_timestamp = now - timedelta(hours=1)
    row.save()
    assert "Получены ещё не все изменения" in text(support.get(A1))
    row.halted_at = now
    row.save()
    assert "Annals перестал получать изменения" in text(support.get(A1))


def test_an_application_opens_with_its_children(documents: Store, support: Client) -> None:
    documents.add("C1", 0, {"brand": "Лада", "model": "Веста"}, 3, entity="product-car")
    documents.add("C1", 1, "null", 4, entity="product-car", type=ChangeType.DELETE)
    documents.add("R9", 0, {"fullName": "Чужой"}, 4, entity="participant-role", application="A9")
    page = support.get(WHOLE)
    said = text(page)
    order = [said.index(each) for each in ("Автомобиль Лада Веста версия 0", "Рожков Олег версия 0",
             "версия 1 изменение", "Заявка версия 0")]  # fmt: skip
    assert order == sorted(order)
    assert "Чужой" not in said
    body = page.content.decode()
    assert 'href="/admin/history/participant-role/R1/"' in body
    assert "<s>Лада Веста</s>" in body
    assert 'aria-current="page">Вся заявка' in body
    child = support.get("/admin/history/participant-role/R1/").content.decode()
    assert f'href="{WHOLE}"' in child


def test_what_was_deleted_keeps_its_name(documents: Store, support: Client) -> None:
    """Also on its own page and in the search, where the newest version has no document."""
    documents.add("R1", 1, "null", 3, entity="participant-role", type=ChangeType.DELETE)
    documents.add("R1", 2, "null", 4, entity="participant-role", type=ChangeType.DELETE)
    documents.add("R2", 0, "null", 4, entity="participant-role", type=ChangeType.DELETE)
    own = "/admin/history/participant-role/R1/"
    for address in (own, f"{own}state/", f"{own}versions/2/", f"{own}compare/?from=0&to=2"):
        assert "<h1>Рожков Олег</h1>" in support.get(address).content.decode(), address
    body = support.get(WHOLE).content.decode()
    assert "<s>Рожков Олег</s>" in body
    assert "<s>R2</s>" in body
    found = text(support.get("/admin/history/", {"q": "R1 R2"}))
    assert "Рожков Олег" in found


def test_many_children_are_folded_by_kind(documents: Store, support: Client) -> None:
    for number in range(40):
        documents.add(f"T{number:02}", 0, {"name": f"Задача {number}"}, 3, entity="product-task")
    documents.add("H1", 0, {"type": "Квартира"}, 3, entity="realty-info")
    page = support.get(WHOLE).content.decode()
    shown = page[: page.index('class="toolbar"')]
    assert "ещё 34" in shown
    folded = shown[shown.index("<details>") : shown.index("</details>")]
    assert folded.count("/admin/history/product-task/") == 34
    assert shown.index("</details>") < shown.index("Квартира")
    assert shown.count('<span class="kind">Задача</span>') == 1


def test_an_application_of_which_only_children_are_known(store: Store, support: Client) -> None:
    store.add("R1", 0, {"fullName": "Рожков Олег"}, 2, entity="participant-role", application="A5")
    page = support.get("/admin/applications/A5/")
    assert page.status_code == 200
    assert "Рожков Олег" in text(page)
    assert support.get("/admin/applications/A6/").status_code == 404


def test_an_application_is_filtered_and_paged(store: Store, support: Client) -> None:
    for number in range(40):
        store.add("A1", number, {"n": number}, number, author="a")
        store.add("R1", number, {"n": number}, number, entity="participant-role", author="b")
    first = support.get(f"{WHOLE}?author=b").content.decode()
    assert len(re.findall(r'id="v\d+-R1"', first)) == 40
    assert 'id="v0-A1"' not in first
    page = support.get(WHOLE).content.decode()
    rest = support.get(link(page, "next")).content.decode()
    assert len(re.findall(r'<li class="version', page + rest)) == 80
    assert "Начало сохранённой истории" in rest


def poll_of(page: str) -> str:
    found = re.search(r'data-newer="([^"]*)"', page)
    assert found
    return found[1].replace("&amp;", "&")


def test_newer_versions_are_counted_and_leave_no_row(documents: Store, support: Client) -> None:
    card = poll_of(support.get(A1).content.decode())
    whole = poll_of(support.get(WHOLE).content.decode())
    looks = JournalEntry.objects.count()
    assert support.get(card).json() == support.get(whole).json() == {"text": ""}
    documents.add("A1", 2, {"name": "Ипотека", "rate": "16.5"}, 9)
    documents.add(
        "R7", 0, {"fullName": "Рожкова Анна"}, 10, entity="participant-role", application="A1"
    )
    assert support.get(card).json() == {"text": "1 новая версия: показать"}
    assert support.get(whole).json() == {"text": "2 новые версии: показать"}
    assert JournalEntry.objects.count() == looks


def test_only_what_the_login_opened_is_counted(documents: Store, support: Client) -> None:
    asked = {"since": "2020-01-01T00:00:00Z"}
    assert support.get(f"{A1}newer/", asked).status_code == 404
    support.get(A1)
    for since, status in ((asked["since"], 200), ("9999-12-31T23:59:59.999999Z", 200), ("x", 404)):
        assert support.get(f"{A1}newer/", {"since": since}).status_code == status


def test_a_page_that_counts_does_not_keep_an_idle_login(documents: Store, support: Client) -> None:
    poll = poll_of(support.get(A1).content.decode())
    session = support.session
    session[sessions.SEEN] = seen = time.time() - 1000
    session.save()
    assert support.get(poll, headers={sessions.POLL: "1"}).status_code == 200
    assert support.session[sessions.SEEN] == seen
    support.get(A1)
    assert support.session[sessions.SEEN] > seen


def test_a_filtered_page_does_not_count(documents: Store, support: Client) -> None:
    assert "data-newer" not in support.get(A1, {"author": "x.unknown"}).content.decode()
