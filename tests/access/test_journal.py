"""Every access writes a journal entry: who, when, from where, what was opened, and the outcome."""

from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client

from annals.access.journal.actions import AccessAction, classify_route
from annals.access.journal.read import generate_lines
from annals.access.local_logins import create_break_glass_link, create_break_glass_login
from annals.access.models import JournalEntry
from history.timeline.sources.tables import TableSource
from tests.access.test_permissions import ELSEWHERE, ENTITY, MATRIX, list_routes
from tests.db.store import Store
from tests.messages import NOW

API = f"/api/v1/{ENTITY}"
SECRET = "passport 4509 123456"


def list_entries() -> list[JournalEntry]:
    """Return the journal entries, oldest first."""
    return list(JournalEntry.objects.order_by("at", "id"))


def get_last_entry() -> JournalEntry:
    return list_entries()[-1]


@pytest.fixture
def support(client: Client, store: Store) -> Client:
    store.add("A1", 0, {"rate": "1", "number": SECRET}, 0)
    store.add("A1", 1, {"rate": "2", "number": SECRET}, 1)
    store.add("R1", 0, {"rate": "1"}, 0, entity="participant-role", application="A1")
    client.force_login(User.objects.get(username="support"))
    return client


PRODUCT, PERSON = "history/product-instance/A1", "history/participant-role/R1"
ACCESSES = {
    f"/api/v1/{PRODUCT}": "timeline",
    f"/api/v1/{PRODUCT}/versions": "timeline",
    f"/api/v1/{PRODUCT}/versions/1": "version",
    f"/api/v1/{PRODUCT}/compare?from=0&to=1": "compare",
    f"/api/v1/{PRODUCT}/at?time=2099-01-01": "moment",
    f"/api/v1/{PRODUCT}/fields?path=/rate": "field",
    f"/api/v1/{PRODUCT}/blame": "blame",
    f"/api/v1/{PERSON}": "timeline",
    f"/api/v1/{PERSON}/blame": "blame",
    f"/api/v1/{PERSON}/fields?path=/rate": "field",
    "/api/v1/applications/A1/history": "application",
    "/api/v1/applications/A1/at?time=2099-01-01": "moment",
    "/api/v1/search?q=A1": "search",
    "/api/v1/search?q=nothing": "search",
    f"/admin/{PRODUCT}/": "timeline",
    f"/admin/{PRODUCT}/?as=csv": "export",
    "/admin/applications/A1/?as=note": "export",
    f"/admin/{PRODUCT}/versions/1/?as=json": "version",
    f"/admin/{PRODUCT}/versions/1/": "version",
    f"/admin/{PRODUCT}/versions/1/?download=1": "version",
    f"/admin/{PRODUCT}/compare/?from=0&to=1": "compare",
    f"/admin/{PRODUCT}/state/": "blame",
    f"/admin/{PERSON}/": "timeline",
    "/admin/applications/A1/": "application",
    "/admin/at/A1/": "moment",
    "/admin/history/?q=A1+nothing": "search",
    "/admin/history/?q=nothing": "search",
}


@pytest.mark.parametrize("address", ACCESSES)
def test_access_writes_one_journal_entry(address: str, support: Client) -> None:
    action = ACCESSES[address]
    kind = "participant-role" if "participant" in address else "product-instance"
    application = "" if address.endswith("q=nothing") else "A1"
    for method in ("GET", "HEAD"):
        answer = support.generic(method, address, headers={"X-Request-ID": f"id-{method}"})
        assert answer.status_code == 200
        (row,) = JournalEntry.objects.filter(request_id=f"id-{method}")
        assert (row.login, row.actor, row.address) == ("support", "person", "127.0.0.1")
        assert (row.action, row.application) == (action, application)
        assert row.entity == ("" if action == "search" else kind)
        assert (row.outcome, row.status, row.method) == ("shown", 200, method)


def test_not_modified_answer_writes_journal_entry(support: Client) -> None:
    """A request that is answered with 304 is an access, and needs the permission to read."""
    address = f"{API}/versions/1"
    tag = support.get(address).headers["ETag"]
    answer = support.get(address, headers={"If-None-Match": tag, "X-Request-ID": "again"})
    assert (answer.status_code, answer.content) == (304, b"")
    (row,) = JournalEntry.objects.filter(request_id="again")
    assert (row.action, row.application, row.outcome) == ("version", "A1", "shown")
    assert (row.entity_id, row.status) == ("A1", 304)
    support.force_login(User.objects.get(username="ops"))
    refused = support.get(address, headers={"If-None-Match": tag})
    assert (refused.status_code, "ETag" in refused.headers) == (403, False)
    assert get_last_entry().outcome == "refused"
    support.logout()
    assert support.get(address, headers={"If-None-Match": "*"}).status_code == 401


ROUTES_WITHOUT_ACCESS = {
    "",
    "admin/",
    "admin/jsi18n/",
    "admin/completeness/",
    "admin/operations/",
    "admin/days/",
    "admin/history/<entity:entity>/<id:id>/newer/",
    "api/v1/",
    "api/v1/completeness",
    "api/schema/",
    "api/docs/",
    "break-glass/<str:name>/<str:token>/",
}
PREFIXES_WITHOUT_ACCESS = (
    "admin/login/",
    "admin/logout/",
    "admin/language/",
    "admin/zone/",
    "oidc/",
    "admin/history/person/",
    "admin/history/fieldlabel/",
    "admin/auth/",
    "admin/autocomplete/",
    "admin/^(?P<app_label>",
    "admin/(?P<url>",
)


def test_every_route_counts_as_access_unless_listed_as_exception() -> None:
    actions = {route: classify_route(route) for route in list_routes()}
    routes_without_access = {pattern for pattern, action in actions.items() if action is None}
    assert routes_without_access == {
        name
        for name in actions
        if name in ROUTES_WITHOUT_ACCESS or name.startswith(PREFIXES_WITHOUT_ACCESS)
    }
    assert AccessAction.OTHER not in actions.values()
    # The routes of identity providers exist only if a provider is declared.
    routes = {route for route in actions if not route.startswith("oidc/")}
    assert routes == MATRIX.keys() | ELSEWHERE
    assert classify_route("admin/something-new/") is AccessAction.OTHER


@pytest.mark.parametrize(
    "address",
    [
        "/healthz",
        "/readyz",
        "/metrics",
        "/admin/login/",
        "/api/schema/",
        "/api/docs/",
        "/static/history/annals.css",
        "/admin/",
        "/api/v1/completeness",
        "/nowhere",
        "/",
        "/admin/nowhere/",
        "/api/v1/nowhere",
    ],
)
def test_pages_that_show_no_data_write_no_journal_entry(address: str, support: Client) -> None:
    answer: Any = support.get(address)
    assert answer.status_code in (200, 301, 302, 401, 404, 503)
    if answer.streaming:
        b"".join(answer.streaming_content)  # reading the answer closes the file
    assert list_entries() == []


def test_start_page_writes_journal_entry_when_it_lists_documents(support: Client) -> None:
    session = support.session
    session["opened"] = [["product-instance", "NONE"]]
    session.save()
    support.get("/admin/")
    assert [(row.action, row.application) for row in list_entries()] == [("search", "")]
    assert [line.action for line in generate_lines(list_entries())] == ["start page"]


@pytest.mark.parametrize(
    "login, address, status",
    [
        ("ops", API, 403),
        ("ops", f"/admin/{ENTITY}/", 403),
        ("support", "/admin/ingest/quarantined/", 403),
        ("admin", "/admin/journal/", 403),
    ],
)
def test_refused_access_writes_journal_entry(
    login: str, address: str, status: int, client: Client, store: Store
) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    client.force_login(User.objects.get(username=login))
    assert client.get(address).status_code == status
    (row,) = list_entries()
    assert (row.login, row.actor) == (login, "person")
    assert (row.outcome, row.status) == ("refused", status)


@pytest.mark.parametrize(
    "address, status",
    [
        (API, 401),
        ("/api/v1/search?q=A1", 401),
        (f"/admin/{ENTITY}/", 302),
        ("/admin/journal/", 302),
        (f"/api/v1/history/product-instance/{'y' * 900}", 401),
    ],
)
def test_request_without_login_writes_no_journal_entry(
    address: str, status: int, client: Client, store: Store
) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    assert client.get(address, headers={"X-Annals-Reason": "z"}).status_code == status
    assert list_entries() == []


@pytest.mark.parametrize(
    "address, status, identifier",
    [
        ("/api/v1/history/product-instance/none", 404, "none"),
        ("/admin/history/product-instance/none/", 404, "none"),
        (f"{API}?pageSize=0", 400, "A1"),
        ("/api/v1/history/unknown/A1", 404, "A1"),
    ],
)
def test_failed_access_writes_journal_entry(
    address: str, status: int, identifier: str, support: Client
) -> None:
    assert support.get(address).status_code == status
    (row,) = list_entries()
    assert (row.outcome, row.status, row.entity_id) == ("failed", status, identifier)


@pytest.mark.parametrize("address", [API, f"/admin/{ENTITY}/"])
def test_server_error_writes_journal_entry(
    address: str, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_error(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    support.raise_request_exception = False
    monkeypatch.setattr(TableSource, "fetch_page", raise_error)
    assert support.get(address).status_code == 500
    (row,) = list_entries()
    assert (row.login, row.outcome, row.status) == ("support", "failed", 500)


@pytest.mark.parametrize(
    "query, kept_query",
    [
        ("%2B79161234567", ""),
        ("79161234567=1&4509123456", ""),
        ("time=79161234567", ""),
        ("time=1985-03-12", ""),
        ("from=79161234567&to=4509123456", ""),
        ("from=3&to=12", "?from=3&to=12"),
        ("include=diff,changes&as=csv", "?include=diff,changes&as=csv"),
        ("login=petrov", ""),
        (f"author={SECRET}&path=/number&tz=Europe/Moscow&q={SECRET}", ""),
        ("pageSize=7&from=2026-01-01T00:00:00Z", "?pageSize=7&from=2026-01-01T00:00:00Z"),
        (f"unknown={SECRET}&from={SECRET}", ""),
    ],
)
def test_journal_entry_drops_parameters_that_may_contain_personal_data(
    query: str, kept_query: str, support: Client
) -> None:
    support.get(f"/admin/{ENTITY}/?{query}")
    assert get_last_entry().query == f"/admin/{ENTITY}/{kept_query}"
    assert not any("passport" in str(value) for value in vars(get_last_entry()).values())


FORGED = [
    "ok\n2026-11-22 03:00:00 UTC  boss (Иванов): timeline product-instance A1, shown",
    "\x1b[2K\x1b[1A",
    "a\u202eb",
    "a\u2028b",
    "a\x85b",
    "a\u200bb",
]


@pytest.mark.parametrize("text", FORGED)
def test_every_text_of_journal_entry_is_one_printable_line(text: str, support: Client) -> None:
    support.get(API, headers={"X-Annals-Reason": quote(f"Жалоба {text}")})
    support.get(f"/api/v1/history/product-instance/{quote(text)}")
    assert len(list_entries()) == 2
    for row in list_entries():
        for value in (row.reason, row.entity_id, row.query):
            assert value.isprintable(), value
    assert list_entries()[0].reason.startswith("Жалоба ")


@pytest.mark.parametrize(
    "reason", ["\u200b" * 5, "\u2800" * 5, "\u3164" * 5, "\u00ad" * 5, "-- --"]
)
def test_access_reason_without_visible_words_counts_as_missing(
    reason: str, support: Client
) -> None:
    support.get(API, headers={"X-Annals-Reason": quote(reason)})
    assert get_last_entry().reason == ""


def test_journal_entry_keeps_identity_when_login_is_renamed(support: Client) -> None:
    user = User.objects.get(username="support")
    support.get(API)
    user.username = "somebody-else"
    user.save()
    support.get(API)
    first, second = list_entries()
    assert (first.login, second.login) == ("support", "somebody-else")
    assert first.identity == second.identity == f"user:{user.pk}"


def test_journal_entry_of_request_with_wrong_csrf_token_has_login_of_session(store: Store) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(username="support"))
    assert client.post(API).status_code == 403
    assert (get_last_entry().login, get_last_entry().actor, get_last_entry().outcome) == (
        "support",
        "person",
        "refused",
    )


@pytest.mark.parametrize(
    "address", [f"/admin/{ENTITY}/", f"/admin/{ENTITY}/versions/0/?download=1", "/admin/history/"]
)
def test_screens_refuse_http_methods_other_than_get_and_head(address: str, support: Client) -> None:
    for method in ("OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "POST", "ODD"):
        answer = support.generic(method, address)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD"), method
        assert SECRET not in answer.content.decode()
        assert (get_last_entry().login, get_last_entry().outcome, get_last_entry().status) == (
            "support",
            "failed",
            405,
        )


@pytest.mark.parametrize(
    "address, status",
    [
        ("/admin/ingest/quarantined/?reason__exact=%00", 400),
        ("/admin/ingest/quarantined/?%00=1", 400),
        ("/admin/auth/user/?q=%00", 400),
        ("/admin/history/person/x%00/change/", 400),
        ("/admin/r/1/1/", 404),
        ("/admin/r/31/%00/", 400),
    ],
)
def test_screens_refuse_addresses_with_malformed_parameters(
    address: str, status: int, support: Client
) -> None:
    support.force_login(User.objects.get(username="admin"))
    assert support.get(address).status_code == status


@pytest.mark.parametrize("identifier", ["a\0b", "x" * 3000, "a/b\nc", "\udc80"])
def test_journal_entry_keeps_beginning_of_malformed_id(identifier: str, support: Client) -> None:
    address = f"/api/v1/history/product-instance/{quote(identifier, errors='surrogatepass')}"
    status = support.get(address).status_code
    (row,) = list_entries()
    assert (row.status, row.outcome) == (status, "failed")
    assert row.entity_id[:1] == identifier[:1] or identifier == "\udc80"


def test_reading_child_that_moved_between_applications_writes_journal_entries_for_both_applications(
    support: Client, store: Store
) -> None:
    store.add("R1", 1, {"rate": "2"}, 1, entity="participant-role", application="A2")
    support.get("/api/v1/history/participant-role/R1")
    assert {row.application for row in list_entries()} == {"A1", "A2"}
    assert len({row.request_id for row in list_entries()}) == 1


@pytest.mark.parametrize("address", ["/api/v1/applications/A1/history", "/admin/applications/A1/"])
def test_merged_timeline_writes_journal_entry_for_each_application(
    address: str, support: Client, store: Store
) -> None:
    store.add("A2", 0, {}, 0)
    store.add("R2", 0, {"salary": "777777"}, 0, entity="participant-role", application="A2")
    store.add("R2", 1, {"salary": "1"}, 1, entity="participant-role", application="A1")
    assert "777777" in support.get(address).content.decode()
    # The versions of both have the same moment.
    assert {(row.entity_id, row.application) for row in list_entries()} == {
        ("A1", "A1"),
        ("A1", "A2"),
    }


def test_search_writes_journal_entry_for_each_application_in_results(
    support: Client, store: Store
) -> None:
    ids = [f"P{number}" for number in range(20)]
    for number, id in enumerate(ids):
        person = {"fullName": f"Канарейкин {number}"}
        store.add(id, 0, person, 0, entity="participant-role", application=f"B{number}")
    page = support.get("/admin/history/", {"q": ",".join(ids)}).content.decode()
    assert page.count("Канарейкин") >= len(ids)
    assert {row.application for row in list_entries()} == {f"B{number}" for number in range(20)}
    assert {row.action for row in list_entries()} == {"search"}
    assert len({(row.request_id, row.at) for row in list_entries()}) == 1


def test_journal_entry_has_address_of_client_behind_trusted_proxy(
    support: Client, settings: Any
) -> None:
    from ipaddress import ip_network

    forwarded = {"X-Forwarded-For": "203.0.113.7"}
    support.get(API, headers=forwarded)
    settings.TRUSTED_PROXIES = (ip_network("127.0.0.0/8"),)
    support.get(API, headers=forwarded)
    assert [row.address for row in list_entries()] == ["127.0.0.1", "203.0.113.7"]


def test_journal_entries_of_break_glass_login_have_actor_break_glass(
    client: Client, store: Store
) -> None:
    store.add("A1", 0, {"rate": "1"}, 0)
    path = urlsplit(create_break_glass_link(create_break_glass_login("glass", NOW))).path
    assert client.get(path).status_code == 200
    assert client.post(f"{path[:-2]}/").status_code == 403
    assert list_entries() == []
    assert client.post(path).status_code == 302
    assert client.get(f"/admin/{ENTITY}/").status_code == 200
    assert [(row.login, row.actor, row.action) for row in list_entries()] == [
        ("glass", "break-glass", "break-glass login"),
        ("glass", "break-glass", "timeline"),
    ]
