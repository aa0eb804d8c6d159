"""The page of a version that the store does not have says why, and leads back."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client

from history.base import clock
from history.models import ArchivedDay
from tests.db.noted import held_version
from tests.db.screens import A1, text
from tests.db.store import T0, Store


@pytest.fixture
def gaps(store: Store) -> Store:
    """Versions 1, 2 and 5 of one entity; its createdAt says that version 0 existed."""
    for version in (1, 2, 5):
        data = {"rate": version, "createdAt": T0.isoformat()}
        store.add("A1", version, data, version)
    return store


@pytest.mark.parametrize(
    "address, why",
    [
        ("versions/3/", "Версия 3 не поступала."),
        ("versions/0/", "Версия 0 не поступала."),
        ("versions/9/", "Версии 9 в этой истории не было."),
        ("compare/?from=1&to=3", "Версия 3 не поступала."),
        ("compare/?from=9&to=1", "Версии 9 в этой истории не было."),
        ("versions/3/unmask/?path=/rate", "Версия 3 не поступала."),
    ],
)
def test_it_says_why(gaps: Store, support: Client, address: str, why: str) -> None:
    if "unmask" in address:
        support.force_login(User.objects.get(username="privacy"))
    page = support.get(f"{A1}{address}")
    said = text(page)
    assert page.status_code == 404
    assert why in said
    assert "Проверьте" not in said
    assert f'href="{A1}"' in page.content.decode()


def test_what_retention_removed(store: Store, support: Client) -> None:
    created = clock.now() - timedelta(days=200)
    store.add("A1", 7, {"createdAt": created.isoformat()}, 0)
    said = text(support.get(f"{A1}versions/3/"))
    assert "Версия 3 удалена: вышел срок хранения." in said


def test_what_may_be_in_the_archive(store: Store, support: Client, settings: Any) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, archive_url="/archive")
    ArchivedDay.objects.create(
        table="product_instance_aud", day=T0.date() - timedelta(days=150), rows=1, table_bytes=1,
        file_bytes=1, digest="", files=[{"first": "A0", "last": "A9"}], archived_at=T0,
    )  # fmt: skip
    created = clock.now() - timedelta(days=200)
    store.add("A1", 7, {"createdAt": created.isoformat()}, 0)
    for address, said in (
        (f"{A1}versions/3/", "Возможно, версия 3 в архиве. Администратор Annals"),
        (A1, "Более ранние версии в архиве. Администратор Annals"),
        (f"/admin/at/A1/?time={T0.date() - timedelta(days=100)}", "на этот момент в архиве."),
        ("/admin/history/product-instance/A5/", "Возможно, документ есть в архиве."),
    ):
        assert said in text(support.get(address)), address
    assert "архив" not in text(support.get("/admin/history/product-instance/B5/"))


def test_what_could_not_be_stored_is_found_by_its_document(store: Store, support: Client) -> None:
    held_version("Q1", 3)
    for address in ("/admin/history/?q=Q1", "/admin/history/product-instance/Q1/"):
        said = text(support.get(address))
        assert "Версия 3 пришла" in said
        assert "находится в карантине: неверный updatedAt." in said
    assert "в карантине" not in text(support.get("/admin/history/?q=Q2"))
