"""The filter above a timeline keeps what the user typed, and says which conditions are invalid."""

import html
import re

import pytest
from django.test import Client

from history.models import FieldLabel, Person
from history.store.catalogue import labels
from tests.db.screens import A1, WHOLE, find_link, read_text
from tests.db.store import Store


def read_notice(page: str) -> str:
    result = re.search(r'<p class="notice">(.*?)</p>', page, re.DOTALL)
    return html.unescape(result[1]) if result else ""


def read_filter_summary(page: str) -> str:
    result = re.search(r"<summary>(Filter.*?)</summary>", page)
    return result[1] if result else ""


@pytest.mark.parametrize(
    "query, condition, error, typed",
    [
        ("path=/~9", "Field", "This is not a path of a field", 'value="/~9"'),
        ("path=/[x", "Field", "This is not a path of a field", 'value="/[x"'),
        ("type=FOO", "What happened", "FOO", ""),
        ("from=2026-13-01", "From", "Not a date.", 'value="2026-13-01"'),
        ("to=x", "Before", "Not a date.", 'value="x"'),
        (
            "from=2026-11-25&to=2026-11-20",
            "Before",
            "The end is earlier than the beginning",
            'value="2026-11-20"',
        ),
        (
            "from=9999-12-31T23:59&tz=America/Lima",
            "From",
            "Enter a year from",
            'value="9999-12-31T23:59"',
        ),
        (
            "from=2026-11-25&tz=Mars/Phobos",
            "From",
            "There is no time zone “Mars/Phobos”.",
            'value="2026-11-25"',
        ),
        ("author=" + "x" * 65, "Person", "at most 64", 'value="xxx'),
    ],
)
@pytest.mark.parametrize("address", [A1, WHOLE])
def test_filter_says_which_condition_is_invalid_and_keeps_the_typed_text_in_the_form(
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
    assert read_notice(page).startswith(f"Wrong, and not used: “{condition}”.")
    assert error in form
    assert typed in form
    assert 'value="top-crm"' in form
    assert "Clear" in form


def test_filter_counts_only_valid_conditions(documents: Store, support: Client) -> None:
    assert read_filter_summary(support.get(f"{A1}?type=FOO&from=x").content.decode()) == "Filter"
    page = support.get(f"{A1}?type=FOO&author=m.ivanov").content.decode()
    assert "1 condition" in read_filter_summary(page)
    assert set(re.findall(r'id="v(\d+)"', page)) == {"0"}


def test_link_to_next_page_leaves_out_invalid_filter_conditions(
    store: Store, support: Client
) -> None:
    for number in range(60):
        store.add("A1", number, {"n": number}, number)
    page = support.get(f"{A1}?type=FOO&path=/n").content.decode()
    older = find_link(page, "next")
    assert "FOO" not in older
    assert "path=%2Fn" in older
    next_text = support.get(older).content.decode()
    assert read_notice(next_text) == ""
    assert "Newer" in read_text(support.get(older))


def test_filter_by_masked_field_is_refused_in_language_of_page(
    documents: Store, support: Client
) -> None:
    FieldLabel.objects.update_or_create(
        entity="product-instance", path="/client", defaults={"russian": "Клиент", "sensitive": True}
    )
    labels.forget_catalogue()
    page = support.get(f"{A1}?path=/client/phone").content.decode()
    assert read_notice(page).startswith("Wrong, and not used: “Field”.")
    assert 'value="/client/phone"' in page


NAMES = {"m.ivanov": "Иванов Михаил", "p.semenov": "Семёнов Пётр", "p.semenov2": "Семёнов Павел"}


@pytest.fixture
def named_versions(store: Store) -> Store:
    """Store three versions of A1 with different rates, by three people with known full names."""
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
        ({"from": "2100-01-01T00:00", "tz": "Europe/Moscow"}, []),
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
            "Person",
            "Several have this name: Семёнов Павел (p.semenov2), Семёнов Пётр (p.semenov). "
            "Enter the login.",
        ),
        ({"path": "сумма"}, "Field", "Several fields fit. Choose one of them."),
        ({"path": "Ставка НДС"}, "Field", "No field has this name."),
    ],
)
def test_filter_reports_ambiguous_and_unknown_names(
    named_versions: Store, support: Client, query: dict[str, str], condition: str, error: str
) -> None:
    page = support.get(WHOLE, query).content.decode()
    assert read_notice(page).startswith(f"Wrong, and not used: “{condition}”.")
    assert error in html.unescape(page)
    assert list_shown_versions(page) == []


def test_filter_by_ambiguous_field_name_offers_each_field_with_that_name(
    store: Store, support: Client
) -> None:
    for number, (rate, base) in enumerate([("1", "1"), ("2", "1"), ("2", "2")]):
        store.add("A1", number, {"rate": rate, "baseRate": base}, number, author="m.ivanov")
    query = {"path": "ставка", "author": "m.ivanov"}
    offered = re.findall(
        r'href="([^"]*path=[^"]*)">[^<]*<span class="ident">(/[^<]*)</span>',
        support.get(A1, query).content.decode(),
    )
    versions_by_path = {
        path: list_shown_versions(support.get(html.unescape(url)).content.decode())
        for url, path in offered
    }
    assert (versions_by_path["/rate"], versions_by_path["/baseRate"]) == (["1"], ["2"])
    assert all("author=m.ivanov" in url for url, _ in offered)


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_filter_that_ends_before_retention_shows_from_which_day_versions_are_kept(
    named_versions: Store, support: Client, address: str
) -> None:
    page_text = support.get(address, {"to": "2000-01-01"}).content.decode()
    assert re.match(
        r"Versions are kept from 20\d\d-\d\d-\d\d on: older ones", read_notice(page_text)
    )
    assert ("Card only" in page_text, list_shown_versions(page_text)) == (True, [])
    for wrong in ({"to": "x"}, {"to": "2000-01-01"}, {"page": "x"}):
        assert support.get(address, wrong | {"as": "csv"}).status_code == 400


@pytest.mark.parametrize("address", [A1, WHOLE])
def test_author_and_service_on_a_card_are_links_to_the_filtered_timeline(
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
def test_unknown_name_in_filter_is_reported_when_filter_matches_no_version(
    named_versions: Store, support: Client, typed: str, is_reported: bool
) -> None:
    for name in ("author", "clientId"):
        page = support.get(A1, {name: typed, "type": "DELETE"})
        assert "No version fits the filter." in read_text(page)
        message = f"no name or login “{html.escape(typed)}”"
        assert (message in page.content.decode()) is is_reported


def test_deletion_is_shown_as_deletion_when_only_technical_fields_changed(
    store: Store, support: Client
) -> None:
    store.add("A1", 0, {"rate": "1.5", "modifiedBy": "a"}, 0)
    store.add("A1", 1, {"rate": "1.5", "modifiedBy": "b"}, 1, type=2)
    page_text = read_text(support.get(A1))
    assert "deleted" in page_text
    assert "only technical fields" not in page_text
