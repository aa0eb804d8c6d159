"""The filter above a timeline keeps what the user typed, and says what of it is wrong."""

import html
import re

import pytest
from django.test import Client

from history import labels
from history.models import FieldLabel, Person
from tests.db.screens import A1, WHOLE, link, text
from tests.db.store import Store

ENGLISH = re.compile(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}")


def notice(page: str) -> str:
    found = re.search(r'<p class="notice">(.*?)</p>', page, re.DOTALL)
    return html.unescape(found[1]) if found else ""


def summary(page: str) -> str:
    found = re.search(r"<summary>(Фильтр.*?)</summary>", page)
    return found[1] if found else ""


@pytest.mark.parametrize(
    "asked, condition, error, typed",
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
def test_a_wrong_condition_is_named_and_kept(
    documents: Store,
    support: Client,
    address: str,
    asked: str,
    condition: str,
    error: str,
    typed: str,
) -> None:
    page = support.get(f"{address}?{asked}&clientId=top-crm").content.decode()
    form = page[
        page.index('<form class="filter-form"') : page.index("</form>", page.index("filter-form"))
    ]
    assert notice(page).startswith(f"Не учтено: «{condition}».")
    assert not ENGLISH.search(notice(page))
    assert error in form
    assert typed in form
    assert 'value="top-crm"' in form
    assert "Сбросить" in form


def test_only_conditions_that_are_used_are_counted(documents: Store, support: Client) -> None:
    assert summary(support.get(f"{A1}?type=FOO&from=x").content.decode()) == "Фильтр"
    page = support.get(f"{A1}?type=FOO&author=m.ivanov").content.decode()
    assert "1 условие" in summary(page)
    assert set(re.findall(r'id="v(\d+)"', page)) == {"0"}


def test_the_next_page_keeps_the_conditions_that_are_used(store: Store, support: Client) -> None:
    for number in range(60):
        store.add("A1", number, {"n": number}, number)
    page = support.get(f"{A1}?type=FOO&path=/n").content.decode()
    older = link(page, "next")
    assert "FOO" not in older
    assert "path=%2Fn" in older
    rest = support.get(older).content.decode()
    assert notice(rest) == ""
    assert "Более новые" in text(support.get(older))


def test_a_masked_field_is_refused_in_the_readers_language(
    documents: Store, support: Client
) -> None:
    FieldLabel.objects.update_or_create(
        entity="product-instance", path="/client", defaults={"russian": "Клиент", "sensitive": True}
    )
    labels.forget()
    page = support.get(f"{A1}?path=/client/phone").content.decode()
    assert notice(page).startswith("Не учтено: «Поле».")
    assert 'value="/client/phone"' in page


NAMES = {"m.ivanov": "Иванов Михаил", "p.semenov": "Семёнов Пётр", "p.semenov2": "Семёнов Павел"}


@pytest.fixture
def named(store: Store) -> Store:
    """A1: three versions, by each of NAMES in turn; each changes the rate."""
    for number, (login, name) in enumerate(NAMES.items()):
        Person.objects.update_or_create(login=login, defaults={"full_name": name})
        store.add("A1", number, {"rate": f"{number}.5", "stage": "x"}, number, author=login)
    Person.objects.create(login="top-crm", full_name="Фронт-офис", kind="service")
    return store


def shown(page: str) -> list[str]:
    return re.findall(r'<li class="version[^"]*" id="v(\d+)', page)


@pytest.mark.parametrize("address", [A1, WHOLE])
@pytest.mark.parametrize(
    "asked, versions",
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
def test_names_are_as_good_as_logins_and_paths(
    named: Store, support: Client, address: str, asked: dict[str, str], versions: list[str]
) -> None:
    page = support.get(address, asked).content.decode()
    assert shown(page) == versions
    assert notice(page) == ""
    assert all(html.escape(typed) in page for typed in asked.values())


@pytest.mark.parametrize(
    "asked, condition, error",
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
def test_a_name_of_several_or_of_none_is_said(
    named: Store, support: Client, asked: dict[str, str], condition: str, error: str
) -> None:
    page = support.get(WHOLE, asked).content.decode()
    assert notice(page).startswith(f"Не учтено: «{condition}».")
    assert error in html.unescape(page)
    assert shown(page) == []


def test_each_of_the_fields_with_the_name_is_offered(store: Store, support: Client) -> None:
    for number, (rate, base) in enumerate([("1", "1"), ("2", "1"), ("2", "2")]):
        store.add("A1", number, {"rate": rate, "baseRate": base}, number, author="m.ivanov")
    asked = {"path": "ставка", "author": "m.ivanov"}
    offered = re.findall(r'href="([^"]*path=[^"]*)">[^<]*<span class="ident">(/[^<]*)</span>',
                         support.get(A1, asked).content.decode())  # fmt: skip
    found = {path: shown(support.get(html.unescape(url)).content.decode()) for url, path in offered}
    assert (found["/rate"], found["/baseRate"]) == (["1"], ["2"])
    assert all("author=m.ivanov" in url for url, _ in offered)


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_before_the_days_that_are_kept(named: Store, support: Client, address: str) -> None:
    said = support.get(address, {"to": "2000-01-01"}).content.decode()
    assert re.match(r"Версии хранятся с \d\d\.\d\d\.20\d\d: более ранние", notice(said))
    assert ("Только карточка" in said, shown(said)) == (True, [])
    for wrong in ({"to": "x"}, {"to": "2000-01-01"}, {"page": "x"}):
        assert support.get(address, wrong | {"as": "csv"}).status_code == 400


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_a_name_leads_to_what_they_did(named: Store, support: Client, address: str) -> None:
    named.add("A1", 3, {"rate": "9.5", "stage": "x"}, 3, author=None)
    page = support.get(f"{address}?path=rate").content.decode()
    person, service = (
        html.unescape(each)
        for each in re.findall(r'<span class="who"><a href="([^"]*)"', page)[1::-1]
    )
    assert person == f"{address}?path=rate&author=p.semenov2"
    assert shown(support.get(person).content.decode()) == ["2"]
    assert service == f"{address}?path=rate&clientId=top-crm"
    assert "3" in shown(support.get(service).content.decode())


@pytest.mark.parametrize("typed, said", [("Иван", True), ("nobody<b>", True), ("m.ivanov", False)])
def test_a_name_that_nobody_has_is_said_where_nothing_fits(
    named: Store, support: Client, typed: str, said: bool
) -> None:
    for name in ("author", "clientId"):
        page = support.get(A1, {name: typed, "type": "DELETE"})
        assert "Под фильтр не подходит ни одна версия." in text(page)
        told = f"нет имени или логина «{html.escape(typed)}»"
        assert (told in page.content.decode()) is said


def test_a_deletion_is_not_called_technical(store: Store, support: Client) -> None:
    store.add("A1", 0, {"rate": "1.5", "modifiedBy": "a"}, 0)
    store.add("A1", 1, {"rate": "1.5", "modifiedBy": "b"}, 1, type=2)
    said = text(support.get(A1))
    assert "удаление" in said
    assert "только технические поля" not in said
