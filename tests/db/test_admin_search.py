"""Search on screen, and what is said where nothing is found."""

from __future__ import annotations

from datetime import UTC, datetime

from django.test import Client

from history.models import SearchKey
from tests.db.screens import A1, WHOLE, documents, link, support, text
from tests.db.store import Store

__all__ = ["documents", "support"]


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
    rest = text(support.get(link(page.content.decode(), "next")))
    assert rest.count("найдено по") == 10


def test_a_key_of_what_is_not_stored_finds_nothing(documents: Store, support: Client) -> None:
    """Retention has removed it, or PostgreSQL has refused its only version."""
    SearchKey.objects.create(
        value="CRM-2", name="realtyCrmId", entity="product-instance", id="gone",
        product_instance_id="gone", day=datetime.now(UTC).date(),
    )  # fmt: skip
    page = support.get("/admin/history/", {"q": "CRM-2"})
    assert page.status_code == 200
    assert "За срок хранения с таким идентификатором или номером ничего нет" in text(page)


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


def test_what_was_opened_is_offered_again(documents: Store, support: Client) -> None:
    support.get(A1)
    support.get("/admin/history/participant-role/R1/")
    page = support.get("/admin/").content.decode()
    assert page.index("participant-role/R1/") < page.index(WHOLE)
