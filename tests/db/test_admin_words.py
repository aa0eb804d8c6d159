"""Sentences on the screens and in the API that people misread."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.db.screens import documents, support, text
from tests.db.store import Store

__all__ = ["documents", "support"]


def test_a_search_by_name_says_what_is_not_searched(documents: Store, support: Client) -> None:
    for asked in ("Иванов Иван", "+7 900 123-45-67"):
        shown = text(support.get("/admin/history/", {"q": asked}))
        assert "По имени, телефону, паспорту и сумме поиска нет." in shown


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
