"""Sentences on the screens and in the API that people misread."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.record import ChangeType
from tests.db.screens import documents, support, text
from tests.db.store import Store

__all__ = ["documents", "support"]


def test_a_search_by_name_says_what_is_not_searched(documents: Store, support: Client) -> None:
    for asked in ("Иванов Иван", "+7 900 123-45-67"):
        shown = text(support.get("/admin/history/", {"q": asked}))
        assert "По имени, телефону, паспорту и сумме поиска нет." in shown


def test_what_was_deleted_no_longer_exists(documents: Store, support: Client) -> None:
    documents.add("R2", 0, {"brand": "Lada"}, 3, entity="product-car")
    documents.add("R2", 1, "null", 4, entity="product-car", type=ChangeType.DELETE)
    for address in ("/admin/history/product-car/R2/", "/admin/applications/A1/"):
        assert "больше не существует" in text(support.get(address))


def test_an_unknown_id_is_not_called_a_version(documents: Store, support: Client) -> None:
    page = support.get("/admin/history/product-instance/NOPE/")
    assert page.status_code == 404
    assert "с этим идентификатором ничего нет" in text(page)
    assert "такой версии" not in text(page)


@pytest.mark.parametrize("model", ["auth/user", "history/person", "history/fieldlabel"])
def test_lists_have_their_name_for_a_title(model: str, client: Client, db: None) -> None:
    client.force_login(User.objects.get(username="admin"))
    shown = text(client.get(f"/admin/{model}/"))
    assert "Выберите" not in shown
    assert "Всего: " in shown


def test_who_is_not_logged_in_is_told_what_to_do(client: Client, db: None) -> None:
    answer = client.get("/api/v1/search?q=A1", headers={"Accept-Language": "ru"})
    assert answer.status_code == 401
    said = answer.json()["error"]["message"]
    assert said == "никто не вошёл; войдите или пришлите токен"
