"""The filter above a timeline keeps what the user typed, and says what of it is wrong."""

import html
import re

import pytest
from django.test import Client

from history.catalogue import labels
from history.models import FieldLabel, Person
from tests.db.screens import A1, WHOLE, link, text
from tests.db.store import Store

ENGLISH = re.compile(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}")


def read_notice(page: str) -> str:
    result = re.search(r'<p class="notice">(.*?)</p>', page, re.DOTALL)
    return html.unescape(result[1]) if result else ""


def read_filter_summary(page: str) -> str:
    result = re.search(r"<summary>(Фильтр.*?)</summary>", page)
    return result[1] if result else ""


@pytest.mark.parametrize(
    "query, condition, error, typed",
    [
        ("path=/~9", "Поле", "Путь к полю записан неверно", 'value="/~9"'),
        ("path=/[x", "Поле", "Путь к полю записан неверно", 'value="/[x"'),
        ("type=FOO", "Что произошло", "FOO", ""),
        ("from=2026-13-01", "С", "Дата не распознана.", 'value="2026-13-01"'),
        ("to=x", "До", "Дата не распознана.", 'value="x"'),
        ("from=2026-11-25&to=2026-11-20", "До", "Конец раньше начала", 'value="2026-11-20"'),
        ("from=9999-12-31T23:59&tz=America/Lima", "С", "Год должен", 'value="9999-12-31T23:59"'),
        ("author=" + "x" * 65, "Сотрудник", "не более 64", 'value="xxx'),
    ],
)
@pytest.mark.parametrize("address", [A1, WHOLE])
def test_wrong_condition_is_named_and_stays_in_the_form(
    documents: Store,
    support: Client,
    address: str,
    query: str,
    condition: str,
    error: str,
    typed: str,
) -> None:
    page = support.get(f"{address}?{query}&clientId=top-crm").content.decode()
    form = page[
        page.index('<form class="filter-form"') : page.index("</form>", page.index("filter-form"))
    ]
    assert read_notice(page).startswith(f"Не учтено: «{condition}».")
    assert not ENGLISH.search(read_notice(page))
    assert error in form
    assert typed in form
    assert 'value="top-crm"' in form
    assert "Сбросить" in form


def test_filter_counts_only_valid_conditions(documents: Store, support: Client) -> None:
    assert read_filter_summary(support.get(f"{A1}?type=FOO&from=x").content.decode()) == "Фильтр"
    page = support.get(f"{A1}?type=FOO&author=m.ivanov").content.decode()
    assert "1 условие" in read_filter_summary(page)
    assert set(re.findall(r'id="v(\d+)"', page)) == {"0"}


def test_next_page_keeps_valid_conditions(store: Store, support: Client) -> None:
    for number in range(60):
        store.add("A1", number, {"n": number}, number)
    page = support.get(f"{A1}?type=FOO&path=/n").content.decode()
    older = link(page, "next")
    assert "FOO" not in older
    assert "path=%2Fn" in older
    next_text = support.get(older).content.decode()
    assert read_notice(next_text) == ""
    assert "Более новые" in text(support.get(older))


def test_filter_by_masked_field_is_refused_in_language_of_page(
    documents: Store, support: Client
) -> None:
    FieldLabel.objects.update_or_create(
        entity="product-instance", path="/client", defaults={"russian": "Клиент", "sensitive": True}
    )
    labels.forget_catalogue()
    page = support.get(f"{A1}?path=/client/phone").content.decode()
    assert read_notice(page).startswith("Не учтено: «Поле».")
    assert 'value="/client/phone"' in page


NAMES = {"m.ivanov": "Иванов Михаил", "p.semenov": "Семёнов Пётр", "p.semenov2": "Семёнов Павел"}


@pytest.fixture
def named_versions(store: Store) -> Store:
    """A1: three versions, by each of NAMES in turn; each changes the rate."""
    for number, (login, name) in enumerate(NAMES.items()):
        Person.objects.update_or_create(login=login, defaults={"full_name": name})
        store.add("A1", number, {"rate": f"{number}.5", "stage": "x"}, number, author=login)
    Person.objects.create(login="top-crm", full_name="Фронт-офис", kind="service")
    return store


def list_shown_versions(page: str) -> list[str]:
    return re.findall(r'<li class="version[^"]*" id="v(\d+)', page)


@pytest.mark.parametrize("address", [A1, WHOLE])
@pytest.mark.parametrize(
    "query, versions",
    [
        ({"author": "m.ivanov"}, ["0"]),
        ({"author": "Иванов Михаил"}, ["0"]),
        ({"author": "михаил иванов"}, ["0"]),
        ({"author": "Иванов"}, ["0"]),
        ({"author": "Семенов Петр"}, ["1"]),
        ({"author": "Иван"}, []),
        ({"author": "%"}, []),
        ({"author": "nobody"}, []),
        ({"clientId": "фронт-офис"}, ["2", "1", "0"]),
        ({"type": "CREATE"}, ["0"]),
        ({"from": "2000-01-01T00:00", "tz": "Europe/Moscow"}, ["2", "1", "0"]),
        ({"from": "2100-01-01T00:00", "tz": "Mars/Phobos"}, []),
        ({"path": "Процентная ставка"}, ["2", "1"]),
        ({"path": "процентная"}, ["2", "1"]),
        ({"path": "Interest rate"}, ["2", "1"]),
        ({"path": "rate"}, ["2", "1"]),
        ({"path": "/rate"}, ["2", "1"]),
        ({"path": "Этап"}, []),
    ],
)
def test_filter_accepts_names_of_people_services_and_fields(
    named_versions: Store, support: Client, address: str, query: dict[str, str], versions: list[str]
) -> None:
    page = support.get(address, query).content.decode()
    assert list_shown_versions(page) == versions
    assert read_notice(page) == ""
    assert all(html.escape(typed) in page for typed in query.values())


@pytest.mark.parametrize(
    "query, condition, error",
    [
        (
            {"author": "Семёнов"},
            "Сотрудник",
            "Так зовут нескольких: Семёнов Павел (p.semenov2), Семёнов Пётр (p.semenov). "
            "Введите логин.",
        ),
        ({"path": "сумма"}, "Поле", "Подходят несколько полей. Выберите одно из них."),
        ({"path": "Ставка НДС"}, "Поле", "Поля с таким названием нет."),
    ],
)
def test_filter_reports_ambiguous_and_unknown_names(
    named_versions: Store, support: Client, query: dict[str, str], condition: str, error: str
) -> None:
    page = support.get(WHOLE, query).content.decode()
    assert read_notice(page).startswith(f"Не учтено: «{condition}».")
    assert error in html.unescape(page)
    assert list_shown_versions(page) == []


def test_filter_offers_each_field_that_has_the_name(store: Store, support: Client) -> None:
    for number, (rate, base) in enumerate([("1", "1"), ("2", "1"), ("2", "2")]):
        store.add("A1", number, {"rate": rate, "baseRate": base}, number, author="m.ivanov")
    query = {"path": "ставка", "author": "m.ivanov"}
    offered = re.findall(r'href="([^"]*path=[^"]*)">[^<]*<span class="ident">(/[^<]*)</span>',
                         support.get(A1, query).content.decode())  # fmt: skip
    found_text = {
        path: list_shown_versions(support.get(html.unescape(url)).content.decode())
        for url, path in offered
    }
    assert (found_text["/rate"], found_text["/baseRate"]) == (["1"], ["2"])
    assert all("author=m.ivanov" in url for url, _ in offered)


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_filter_before_retention_says_from_when_versions_are_kept(
    named_versions: Store, support: Client, address: str
) -> None:
    page_text = support.get(address, {"to": "2000-01-01"}).content.decode()
    assert re.match(r"Версии хранятся с \d\d\.\d\d\.20\d\d: более ранние", read_notice(page_text))
    assert ("Только карточка" in page_text, list_shown_versions(page_text)) == (True, [])
    for wrong in ({"to": "x"}, {"to": "2000-01-01"}, {"page": "x"}):
        assert support.get(address, wrong | {"as": "csv"}).status_code == 400


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_name_on_card_links_to_versions_of_that_person(
    named_versions: Store, support: Client, address: str
) -> None:
    named_versions.add("A1", 3, {"rate": "9.5", "stage": "x"}, 3, author=None)
    page = support.get(f"{address}?path=rate").content.decode()
    person, service = (
        html.unescape(item)
        for item in re.findall(r'<span class="who"><a href="([^"]*)"', page)[1::-1]
    )
    assert person == f"{address}?path=rate&author=p.semenov2"
    assert list_shown_versions(support.get(person).content.decode()) == ["2"]
    assert service == f"{address}?path=rate&clientId=top-crm"
    assert "3" in list_shown_versions(support.get(service).content.decode())


@pytest.mark.parametrize(
    "typed, is_reported", [("Иван", True), ("nobody<b>", True), ("m.ivanov", False)]
)
def test_unknown_name_is_reported_when_no_version_fits(
    named_versions: Store, support: Client, typed: str, is_reported: bool
) -> None:
    for name in ("author", "clientId"):
        page = support.get(A1, {name: typed, "type": "DELETE"})
        assert "Под фильтр не подходит ни одна версия." in text(page)
        told = f"нет имени или логина «{html.escape(typed)}»"
        assert (told in page.content.decode()) is is_reported


def test_deletion_is_not_called_technical(store: Store, support: Client) -> None:
    store.add("A1", 0, {"rate": "1.5", "modifiedBy": "a"}, 0)
    store.add("A1", 1, {"rate": "1.5", "modifiedBy": "b"}, 1, type=2)
    page_text = text(support.get(A1))
    assert "удаление" in page_text
    assert "только технические поля" not in page_text
