"""The support screens through Django's test client: what they say, to whom, and how safely."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from history import labels
from history.models import FieldLabel, Person, SearchKey
from history.record import ChangeType
from ingest.models import Ledger
from tests.db.store import Store, queries

A1 = "/admin/history/product-instance/A1/"
WHOLE = "/admin/applications/A1/"
SCREENS = [
    "/admin/history/",
    "/admin/history/?q=A1",
    A1,
    WHOLE,
    f"{A1}versions/0/",
    f"{A1}state/",
    f"{A1}compare/?from=0&to=1",
    "/admin/history/product-instance/UNSEEN/",
]
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


@pytest.fixture
def documents(store: Store) -> Store:
    """An application with two versions by a known and an unknown login, and a child of it."""
    Person.objects.create(login="m.ivanov", full_name="Иванов Михаил", kind="person")
    Person.objects.create(login="top-crm", full_name="Обмен с CRM", kind="service")
    FieldLabel.objects.update_or_create(
        entity="product-instance", path="/rate", defaults={"russian": "Ставка", "kind": "percent"}
    )
    labels.forget()
    store.add("A1", 0, {"name": "Ипотека", "rate": "18.4"}, 0)
    store.add("A1", 1, {"name": "Ипотека", "rate": "17.9"}, 1, author="x.unknown")
    store.add("R1", 0, {"fullName": "Рожков Олег"}, 2, entity="participant-role")
    return store


@pytest.fixture
def support(client: Client) -> Client:
    client.force_login(User.objects.get(username="support"))
    return client


def text(response: HttpResponse) -> str:
    """What a reader sees, roughly: no tags, no runs of spaces."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.content.decode()))


def test_nothing_without_a_login(documents: Store, client: Client) -> None:
    for address in ("/admin/", *SCREENS):
        response = client.get(address)
        assert response.status_code == 302, address
        assert response.headers["Location"].startswith("/admin/login/"), address


def test_operators_see_no_document(documents: Store, client: Client) -> None:
    client.force_login(User.objects.get(username="ops"))
    for address in SCREENS:
        response = client.get(address)
        assert response.status_code == 403, address
        assert "Ипотека" not in response.content.decode()
    assert "bigsearch" not in client.get("/admin/").content.decode()


def test_support_may_not_edit_people(documents: Store, support: Client) -> None:
    assert support.get("/admin/history/person/").status_code == 403
    assert support.get("/admin/auth/user/").status_code == 403


def test_admin_edits_people_and_labels(documents: Store, client: Client) -> None:
    client.force_login(User.objects.get(username="admin"))
    assert "Иванов Михаил" in text(client.get("/admin/history/person/?q=Иванов"))
    bad = {"path": "rate", "russian": "x", "kind": "text", "words": "{}"}
    assert client.post("/admin/history/fieldlabel/add/", bad).status_code == 200
    good = {**bad, "path": "/own", "entity": "product-instance"}
    assert client.post("/admin/history/fieldlabel/add/", good).status_code == 302
    assert FieldLabel.objects.filter(entity="product-instance", path="/own").count() == 1


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


def test_gaps_and_beginnings_are_told(store: Store, support: Client) -> None:
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
    assert "удалено" in said
    assert "создано" in said


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


def test_one_hit_opens_at_once(documents: Store, support: Client) -> None:
    assert support.get("/admin/history/?q=%20A1%20").headers["Location"] == WHOLE
    response = support.get("/admin/history/?q=R1")
    assert response.headers["Location"] == "/admin/history/participant-role/R1/"


def test_several_ids_are_listed(documents: Store, support: Client) -> None:
    page = support.get("/admin/history/", {"q": "A1, R1\nNO1"})
    said = text(page)
    assert "Ипотека" in said
    assert "Рожков Олег" in said
    assert "За срок хранения с таким идентификатором или номером ничего нет" in said
    assert f'href="{WHOLE}"' in page.content.decode()


def test_business_keys_are_searched(documents: Store, support: Client) -> None:
    for number in range(60):
        documents.add(f"R{number}", 1, {"clientId": "77 00"}, 5, entity="participant-role")
        SearchKey.objects.create(
            value="77 00", name="clientId", entity="participant-role", id=f"R{number}",
            product_instance_id="A1", day=datetime.now(UTC).date(),
        )  # fmt: skip
    page = support.get("/admin/history/", {"q": "77 00"})
    said = text(page)
    assert said.count("найдено по") == 50
    assert "её заявка" in said
    rest = text(support.get(_link(page.content.decode(), "next")))
    assert rest.count("найдено по") == 10


def test_nothing_found_says_what_can_be_searched(documents: Store, support: Client) -> None:
    for query in ("", "NO1", "x" * 300, "\x00"):
        page = support.get("/admin/history/", {"q": query})
        assert page.status_code == 200
        assert "Что можно искать" in text(page)


def test_what_is_not_there_says_why(documents: Store, support: Client) -> None:
    for address in (
        "/admin/history/product-instance/NO1/",
        f"{A1}versions/9/",
        f"{A1}compare/?from=0&to=9",
        "/admin/history/product-instance/NO1/compare/",
    ):
        page = support.get(address)
        assert page.status_code == 404, address
        assert "не было" in text(page), address
    assert support.get("/admin/history/no-such-kind/A1/").status_code == 404


def test_a_snapshot_keeps_every_digit(store: Store, support: Client) -> None:
    store.add("A1", 0, '{"n": 12345678901234567890.10, "s": "</pre><b>"}', 0)
    page = support.get(f"{A1}versions/0/")
    assert "12345678901234567890.10" in page.content.decode()
    assert "</pre><b>" not in page.content.decode()
    file = support.get(f"{A1}versions/0/?download=1")
    assert file.headers["Content-Type"].startswith("application/json")
    assert file.headers["Content-Disposition"] == (
        'attachment; filename="product-instance-A1-v0.json"'
    )
    assert '"n": 12345678901234567890.10' in file.content.decode()


def test_two_versions_are_compared(documents: Store, support: Client) -> None:
    said = text(support.get(f"{A1}compare/?from=1&to=0"))
    assert "Ставка 17,9 % 18,4 %" in said
    assert "Укажите номера двух версий" in text(support.get(f"{A1}compare/"))


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("author=m.ivanov", [0]),
        ("author=nobody", []),
        ("clientId=top-crm", [0, 1]),
        ("type=UPDATE", [1]),
        ("path=/rate", [1]),
        ("path=rate", [1]),
        ("path=/name", []),
        ("from=2000-01-01T00:00&tz=Europe/Moscow", [0, 1]),
        ("from=2100-01-01T00:00", []),
        ("type=NONSENSE", [0, 1]),
        ("from=yesterday&tz=Mars/Phobos", [0, 1]),
    ],
)
def test_filters(documents: Store, support: Client, asked: str, left: list[int]) -> None:
    page = support.get(f"{A1}?{asked}").content.decode()
    shown = {int(number) for number in re.findall(r'href="#v(\d+)"', page)}
    assert sorted(shown) == left


def test_a_wrong_token_shows_everything_and_says_so(documents: Store, support: Client) -> None:
    said = text(support.get(f"{A1}?page=v1:nonsense"))
    assert "Так спросить нельзя" in said
    assert "версия 0" in said


def test_pages_lead_to_the_last_and_back(store: Store, support: Client) -> None:
    for number in range(120):
        store.add("A1", number, {"n": number}, number)
    seen: list[list[str]] = []
    address = A1
    while address:
        page = support.get(address).content.decode()
        seen.append(re.findall(r'href="#v(\d+)"', page))
        address = _link(page, "next")
    assert [len(numbers) for numbers in seen] == [50, 50, 20]
    assert [int(number) for numbers in seen for number in numbers] == list(range(119, -1, -1))
    assert "Начало сохранённой истории" in page
    back = _link(page, "prev")
    assert re.findall(r'href="#v(\d+)"', support.get(back).content.decode()) == seen[1]
    first = _link(support.get(back).content.decode(), "prev")
    assert re.findall(r'href="#v(\d+)"', support.get(first).content.decode()) == seen[0]


def _link(page: str, relation: str) -> str:
    found = re.search(rf'rel="{relation}" href="([^"]*)"', page)
    return found[1].replace("&amp;", "&") if found else ""


def test_a_page_takes_as_many_queries_whatever_its_length(
    store: Store, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        store.add("A1", number, {"n": number}, number)
        store.add(f"B{number % 2}", number, {"n": number}, number)
    support.get(A1)
    counts = []
    for address in (A1, "/admin/history/product-instance/B1/"):
        support.get(address)
        with queries(monkeypatch) as said:
            support.get(address)
        counts.append(len([one for one in said if "_aud" in one]))
    assert counts[0] <= 3
    assert counts[1] <= 3


def test_hostile_content_stays_text(store: Store, support: Client) -> None:
    FieldLabel.objects.update_or_create(
        entity="", path="/evil", defaults={"russian": EVIL, "kind": "text"}
    )
    Person.objects.create(login="evil", full_name=EVIL)
    labels.forget()
    identity = "A<b>\"'/&?#é"
    store.add(identity, 0, {"name": EVIL, EVIL: {EVIL: [EVIL] * 3}}, 0, author=EVIL[:64])
    store.add(identity, 1, {"name": EVIL * 20, "evil": EVIL}, 1, author="evil", client="<i>'\"&")
    found = support.get("/admin/history/", {"q": identity})
    whole = found.headers["Location"]
    timeline = whole.replace("/applications/", "/history/product-instance/")
    pages = [
        support.get(whole),
        support.get(timeline),
        support.get(f"{timeline}versions/1/"),
        support.get(f"{timeline}compare/?from=0&to=1"),
        support.get(f"{timeline}state/"),
        support.get("/admin/history/", {"q": f"{identity} {EVIL}"}),
        support.get("/admin/"),
    ]
    for page in pages:
        assert page.status_code == 200
        body = page.content.decode()
        assert "<script>alert" not in body
        assert "<img src=x" not in body
        assert "A<b>" not in body


@pytest.mark.parametrize(
    "data",
    [
        "[]",
        "17",
        '"text"',
        '{"a":' * 400 + "1" + "}" * 400,
        '{"": {"": ""}, "~": "/", "a/b": 1, "*": 2, "[x=1]": 3}',
        '{"n": 1e2, "m": -0.0, "big": ' + "9" * 5000 + "}",
        '{"list": [' + ",".join(f'{{"pid": "{n}", "v": {n}}}' for n in range(1000)) + "]}",
        '{"text": "' + "я" * 40000 + '"}',
    ],
)
def test_unusual_documents_have_pages(store: Store, support: Client, data: str) -> None:
    store.add("A1", 0, {"before": [1]}, 0)
    store.add("A1", 1, data, 1)
    store.add("A1", 2, {"after": None}, 2)
    for address in (A1, f"{A1}versions/1/", f"{A1}compare/?from=0&to=1", f"{A1}state/"):
        assert support.get(address).status_code == 200, address


@pytest.fixture
def everything(documents: Store, client: Client) -> list[tuple[str, HttpResponse]]:
    """Every screen there is, as the administrator gets it."""
    client.force_login(User.objects.get(username="admin"))
    addresses = [
        "/admin/",
        "/admin/history/person/",
        "/admin/history/person/add/",
        "/admin/history/person/m.ivanov/change/",
        "/admin/history/person/m.ivanov/delete/",
        "/admin/history/fieldlabel/",
        "/admin/auth/user/",
        "/admin/auth/group/add/",
        "/admin/password_change/",
        *SCREENS,
    ]
    return [(one, client.get(one, follow=True)) for one in addresses]


def test_no_page_needs_more_than_the_policy_allows(
    everything: list[tuple[str, HttpResponse]], client: Client
) -> None:
    client.logout()
    pages = [*everything, ("/admin/login/", client.get("/admin/login/"))]
    for address, page in pages:
        policy = page.headers["Content-Security-Policy"]
        assert "unsafe" not in policy, address
        assert "script-src 'self'" in policy, address
        body = page.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)", body), address
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", body), address
        outside = re.findall(r'(?:src|href|action)="((?:https?:)?//[^"]*)', body)
        assert not outside, (address, outside)


def test_every_page_is_labelled(everything: list[tuple[str, HttpResponse]]) -> None:
    for address, page in everything:
        body = page.content.decode()
        assert '<html lang="ru"' in body, address
        assert "<main" in body, address
        named = set(re.findall(r'<label[^>]*for="([^"]*)"', body))
        for field in re.findall(r"<(?:input|select|textarea)\b[^>]*>", body):
            if re.search(r'type="(hidden|submit|checkbox|radio)"|name="action"', field):
                continue
            own = re.search(r'\bid="([^"]*)"', field)
            assert "aria-label" in field or (own and own[1] in named), (address, field)


def test_russian_unless_switched(documents: Store, support: Client) -> None:
    page = support.get("/admin/", headers={"accept-language": "en-US,en"})
    assert "Кто, что и когда изменил" in text(page)
    assert page.headers["Content-Language"] == "ru"
    back = support.post("/admin/language/", {"language": "en", "next": A1})
    assert back.headers["Location"] == A1
    said = text(support.get(A1))
    assert "version 1" in said
    assert "unknown login" in said
    assert support.get("/admin/language/").status_code == 405
    elsewhere = support.post(
        "/admin/language/", {"language": "ru", "next": "https://evil.example/"}
    )
    assert "evil" not in elsewhere.headers["Location"]


def test_what_was_opened_is_offered_again(documents: Store, support: Client) -> None:
    support.get(A1)
    support.get("/admin/history/participant-role/R1/")
    page = support.get("/admin/").content.decode()
    assert page.index("participant-role/R1/") < page.index(WHOLE)


def test_a_page_says_how_complete_it_is(documents: Store, support: Client) -> None:
    now = datetime.now(UTC)
    row = Ledger.objects.create(
        topic="top-storage.export.product-instance", topic_id="t", partition=0, first_offset=0,
        next_offset=5, high_watermark=5, updated_at=now, checked_at=now, newest_timestamp=now,
    )  # fmt: skip
    assert "Полно до" in text(support.get(A1))
    assert "notice" not in support.get(A1).content.decode()
    row.high_watermark = 9
    row.newest_timestamp = now - timedelta(hours=1)
    row.save()
    assert "Прочитаны ещё не все" in text(support.get(A1))
    row.halted_at = now
    row.save()
    assert "Чтение сообщений остановлено" in text(support.get(A1))


def test_an_application_opens_with_its_children(documents: Store, support: Client) -> None:
    documents.add("C1", 0, {"brand": "Лада", "model": "Веста"}, 3, entity="product-car")
    documents.add("C1", 1, "null", 4, entity="product-car", type=ChangeType.DELETE)
    documents.add("R9", 0, {"fullName": "Чужой"}, 4, entity="participant-role", application="A9")
    page = support.get(WHOLE)
    said = text(page)
    order = [said.index(each) for each in ("Автомобиль Лада Веста версия 0", "Рожков Олег версия 0",
             "версия 1 изменено", "Заявка версия 0")]  # fmt: skip
    assert order == sorted(order)
    assert "Чужой" not in said
    body = page.content.decode()
    assert 'href="/admin/history/participant-role/R1/"' in body
    assert "<s>C1</s>" in body
    assert 'aria-current="page">Вся заявка' in body
    child = support.get("/admin/history/participant-role/R1/").content.decode()
    assert f'href="{WHOLE}"' in child


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
    rest = support.get(_link(page, "next")).content.decode()
    assert len(re.findall(r'<li class="version', page + rest)) == 80
    assert "Начало сохранённой истории" in rest


def test_the_state_names_who_changed_each_field(documents: Store, support: Client) -> None:
    said = text(support.get(f"{A1}state/"))
    rate, name = said.index("Ставка 17,9 %"), said.index("Ипотека", said.index("Поле Значение"))
    assert "x.unknown неизвестный логин" in said[rate : rate + 120]
    assert "Иванов Михаил" in said[name : name + 120]
    assert support.get("/admin/history/product-instance/NO1/state/").status_code == 404
