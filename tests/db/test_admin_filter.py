"""The filter above a timeline keeps what the user typed, and says what of it is wrong."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from history import labels
from history.models import FieldLabel
from tests.db.screens import A1, WHOLE, documents, link, support, text
from tests.db.store import Store

__all__ = ["documents", "support"]

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
        ("path=/~9", "Поле", "Такое поле спросить нельзя", 'value="/~9"'),
        ("path=/[x", "Поле", "Такое поле спросить нельзя", 'value="/[x"'),
        ("type=FOO", "Что произошло", "FOO", ""),
        ("from=2026-13-01", "С", "Введите правильную дату и время", 'value="2026-13-01"'),
        ("to=x", "До", "Введите правильную дату и время", 'value="x"'),
        ("from=2026-11-25&to=2026-11-20", "До", "Это раньше начала", 'value="2026-11-20"'),
        ("from=9999-12-31T23:59&tz=America/New_York", "С", "Вне лет", 'value="9999-12-31T23:59"'),
        ("author=" + "x" * 65, "Логин сотрудника", "не более 64", 'value="xxx'),
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
    assert notice(page).startswith(f"Задано неверно и не учтено: {condition}.")
    assert not ENGLISH.search(notice(page))
    assert error in form
    assert typed in form
    assert 'value="top-crm"' in form
    assert "Сбросить" in form


def test_only_conditions_that_are_used_are_counted(documents: Store, support: Client) -> None:
    assert summary(support.get(f"{A1}?type=FOO&from=x").content.decode()) == "Фильтр"
    page = support.get(f"{A1}?type=FOO&author=m.ivanov").content.decode()
    assert "1 условие" in summary(page)
    assert set(re.findall(r'href="#v(\d+)"', page)) == {"0"}


def test_the_next_page_keeps_the_conditions_that_are_used(store: Store, support: Client) -> None:
    for number in range(60):
        store.add("A1", number, {"n": number}, number)
    page = support.get(f"{A1}?type=FOO&path=/n").content.decode()
    older = link(page, "next")
    assert "FOO" not in older
    assert "path=%2Fn" in older
    rest = support.get(older).content.decode()
    assert notice(rest) == ""
    assert "Новее" in text(support.get(older))


def test_a_masked_field_is_refused_in_the_readers_language(
    documents: Store, support: Client
) -> None:
    FieldLabel.objects.update_or_create(
        entity="product-instance", path="/client", defaults={"russian": "Клиент", "sensitive": True}
    )
    labels.forget()
    page = support.get(f"{A1}?path=/client/phone").content.decode()
    assert notice(page).startswith("Задано неверно и не учтено: Поле.")
    assert 'value="/client/phone"' in page
