"""The search on the screens finds ids and business keys, and explains why it finds nothing."""

import unicodedata
from datetime import UTC, datetime

import pytest
from django.test import Client

from history.models import SearchKey
from tests.db.screens import A1, WHOLE, find_link, read_text
from tests.db.store import Store, minute, record_queries
from tests.old_service import OldServiceServer


def test_search_opens_the_only_hit(documents: Store, support: Client) -> None:
    for query in ("A1", " A1 ", "A1,", "\nA1\n", "заявка A1"):
        result = support.get("/admin/history/", {"q": query})
        assert result.headers["Location"] == WHOLE, query
    response = support.get("/admin/history/?q=R1")
    assert response.headers["Location"] == "/admin/history/participant-role/R1/"


def test_search_lists_hits_of_several_ids(documents: Store, support: Client) -> None:
    page = support.get("/admin/history/", {"q": "A1, R1\nNO1"})
    page_text = read_text(page)
    assert "Ипотека" in page_text
    assert "Рожков Олег" in page_text
    assert "1 was not found in the days that are kept: NO1" in page_text
    assert f'href="{WHOLE}"' in page.content.decode()


def store_client_number(value: str, id: str) -> None:
    SearchKey.objects.create(
        value=value, name="clientId", entity="participant-role", id=id, day=datetime.now(UTC).date()
    )


def test_search_by_client_number_sorts_applications_by_last_change(
    documents: Store, support: Client
) -> None:
    for number in range(60):
        application = f"B{number}"
        documents.add(application, 0, {"name": "Ипотека", "status": "ISSUED"}, number)
        role = {"fullName": f"Рожков {number}", "role": "GUARANTOR"}
        documents.add(f"C{number}", 1, role, 5, entity="participant-role", application=application)
        store_client_number("77 00", f"C{number}")
    role = {"entity": "participant-role", "application": "B58"}
    documents.add("C58", 2, {"fullName": "Рожков"}, 99, **role)
    assert "Last change: Participant, version 2" in read_text(
        support.get("/admin/applications/B58/?type=CREATE")
    )
    page = support.get("/admin/history/", {"q": "77 00"})
    page_text, body = read_text(page), page.content.decode()
    assert page_text.count("found by: Client number") == 50
    places = [body.index(f'href="/admin/applications/{item}/"') for item in ("B58", "B59", "B57")]
    assert places == sorted(places)
    assert "Guarantor Рожков 59" in page_text
    assert 'href="/admin/history/participant-role/C59/"' in body
    assert "Loan issued" in page_text or "Issued" in page_text
    next_text = read_text(support.get(find_link(body, "next")))
    assert next_text.count("found by: Client number") == 10


def test_search_by_client_number_opens_the_only_application(
    documents: Store, support: Client
) -> None:
    store_client_number("77 00", "R1")
    store_client_number("77 00", "R2")
    for query in ("77 00", " 77 00\n"):
        response = support.get("/admin/history/", {"q": query})
        assert response.headers["Location"] == WHOLE


def test_search_finds_business_key_that_begins_with_a_space(
    documents: Store, support: Client
) -> None:
    store_client_number(" 77", "R1")
    assert support.get("/admin/history/", {"q": " 77"}).headers["Location"] == WHOLE


@pytest.mark.parametrize(
    "query, stored",
    [
        *((item, "77-AB") for item in ("№77-ab", "«77-AB»", "77-АВ", "77-ав.", "77-AB\u200b")),
        ("заявка 77", "ЗАЯВКА 77"),
        *((f"77{dash}ab", "77-AB") for dash in "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"),
        ("«77\u2013ab»", "77\u2013AB"),
        ("77-и\N{COMBINING BREVE}", "77-Й"),
    ],
)
def test_search_offers_matches_that_are_spelled_differently(
    documents: Store, support: Client, query: str, stored: str
) -> None:
    """The stored key differs from the query, for example, in letter case, in punctuation before or
    after the key, in look-alike letters or in dashes.
    """
    store_client_number(stored, "R1")
    page = support.get("/admin/history/", {"q": query})
    assert f"Nothing matches {query} exactly. Found with another spelling: {stored}." in read_text(
        page
    )
    assert f'href="{WHOLE}"' in page.content.decode()


@pytest.mark.parametrize("form, typed", [("NFC", "NFD"), ("NFD", "NFC")])
def test_search_offers_stored_id_that_differs_from_entered_id_only_in_unicode_form(
    form: str, typed: str, documents: Store, support: Client
) -> None:
    id = unicodedata.normalize(form, "заявка-й")
    documents.add(id, 0, {"name": "Ипотека"}, 0)
    page = support.get("/admin/history/", {"q": unicodedata.normalize(typed, id)})
    assert "Found with another spelling: " in read_text(page)


def test_search_for_several_texts_offers_values_that_differ_from_a_text_only_in_spelling(
    documents: Store, support: Client
) -> None:
    store_client_number("77-AB", "R1")
    documents.add("B1", 0, {"name": "Ипотека"}, 0)
    page = support.get("/admin/history/", {"q": "№77-ab, b1;  none"})
    page_text = "Nothing matches №77-ab, b1 exactly. Found with another spelling: 77-AB, B1."
    assert page_text in read_text(page)
    shown_text = page.content.decode()
    assert f'href="{WHOLE}"' in shown_text
    assert 'href="/admin/applications/B1/"' in shown_text
    assert page.context["missing"] == ["none"]


def test_search_ignores_number_sign_before_a_number(documents: Store, support: Client) -> None:
    store_client_number("77-AB", "R1")
    assert support.get("/admin/history/", {"q": "№ 77-AB"}).headers["Location"] == WHOLE
    assert support.get("/admin/history/", {"q": "№"}).context["missing"] == ["№"]


@pytest.mark.plain_only("a cluster queries one shard for each id, all in one round trip")
def test_search_for_forty_ids_takes_as_many_queries_as_for_one_id(
    documents: Store, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        documents.add(f"B{number}", 0, {"name": f"Ипотека {number}"}, number)
    counts = []
    for pasted in (["B0", "none"], [f"B{number}" for number in range(40)]):
        support.get("/admin/history/", {"q": " ".join(pasted)})
        with record_queries(monkeypatch) as page_text:
            page = support.get("/admin/history/", {"q": " ".join(pasted)})
        counts.append(len(page_text))
    assert counts[1] <= counts[0]
    assert all(f'href="/admin/applications/B{n}/"' in page.content.decode() for n in range(40))


def test_search_for_more_than_forty_ids_links_to_the_remaining_ids(
    documents: Store, support: Client
) -> None:
    pasted = [f"NO{number}" for number in range(88)] + ["A1", "R1"]
    page = support.get("/admin/history/", {"q": "\r\n".join(pasted)})
    rest_url = "/admin/history/?q=" + "+".join(pasted[40:])
    assert (
        f'first 40 were looked up. <a href="{rest_url}">Search for the other 50</a>'
        in page.content.decode()
    )
    last = "/admin/history/?q=" + "+".join(pasted[80:])
    assert f'<a href="{last}">Search for the other 10</a>' in support.get(rest_url).content.decode()
    page = support.get(last)
    assert f'href="{WHOLE}"' in page.content.decode()
    assert "Search for the other" not in read_text(page)


def test_search_key_without_stored_version_finds_nothing(documents: Store, support: Client) -> None:
    """Retention removed the versions with the key, or PostgreSQL refused the only such version."""
    SearchKey.objects.create(
        value="CRM-2",
        name="realtyCrmId",
        entity="product-instance",
        id="gone",
        day=datetime.now(UTC).date(),
    )
    page = support.get("/admin/history/", {"q": "CRM-2"})
    assert page.status_code == 200
    assert "CRM-2 : nothing has this id or number in the days that are kept" in read_text(page)


def test_search_that_finds_nothing_shows_the_searchable_keys(
    documents: Store, support: Client
) -> None:
    for query in ("", "NO1", "x" * 300, "\x00"):
        page = support.get("/admin/history/", {"q": query})
        assert page.status_code == 200
        assert "What can be searched" in read_text(page)


def test_search_by_name_says_that_names_are_not_searched(documents: Store, support: Client) -> None:
    for words in ("Иванов Иван", "+7 900 123-45-67"):
        shown_text = read_text(support.get("/admin/history/", {"q": words}))
        assert "Names, phone numbers, passports and amounts are not searched." in shown_text


def test_start_page_lists_documents_opened_before(documents: Store, support: Client) -> None:
    support.get(A1)
    support.get("/admin/history/participant-role/R1/")
    page = support.get("/admin/").content.decode()
    assert page.index("participant-role/R1/") < page.index(WHOLE)


def test_search_that_finds_nothing_links_to_pages_that_ask_old_service(
    documents: Store, support: Client, old: OldServiceServer
) -> None:
    old.add_version("ONLYOLD", 0, {"rate": "17"}, minute(0))
    page = support.get("/admin/history/", {"q": "ONLYOLD"})
    assert "The search does not cover the old system." in read_text(page)
    address = "/admin/applications/ONLYOLD/"
    assert f'href="{address}"' in page.content.decode()
    assert 'href="/admin/history/participant-role/ONLYOLD/"' in page.content.decode()
    assert "from the old system" in read_text(support.get(address))
    several = support.get("/admin/history/", {"q": f"A1 a/b B7 {'x' * 33}"}).content.decode()
    assert several.count("/admin/applications/") == 3
    assert "/admin/applications/xxx" not in several
    assert "/admin/history/participant-role/a/b" not in several


def test_search_does_not_mention_old_service_when_none_is_configured(
    documents: Store, support: Client
) -> None:
    assert "old system" not in read_text(support.get("/admin/history/", {"q": "ONLYOLD"}))
