"""Timelines join the versions of the store and of the old service, and list each version once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from django.test import Client

from annals.access.models import JournalEntry
from history.common import clock
from history.common.worker_shares import BusyError
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ROOT
from history.models import FieldLabel
from history.policy import masking
from history.store.catalogue import labels
from history.store.versions import SourceRow, TimelineSubject
from history.timeline.fallback import client as calls
from history.timeline.fallback.answer import has_no_document, parse_answer_page
from history.timeline.sources import old_service as sources
from history.timeline.sources.tables import TableSource
from tests.apache import certificates
from tests.db.ingest_rows import create_quarantined_version
from tests.db.old_service_fixtures import use_old_service
from tests.db.screens import read_text
from tests.db.store import Store, minute
from tests.old_service import OldServiceServer

API = "/api/v1/history/product-instance/A1"
WHOLE = "/api/v1/applications/A1/history"
PERSON = BY_NAME["participant-role"]
pytestmark = pytest.mark.usefixtures("store", "own_breaker")


@pytest.fixture
def application_in_both_services(store: Store, old: OldServiceServer) -> OldServiceServer:
    """Give A1 the versions 0 to 3 in the old service and 3 to 5 in the store; the two versions 3
    differ."""
    for version in range(4):
        old.add_version("A1", version, {"rate": f"old {version}"}, minute(version))
    for version in range(3, 6):
        store.add("A1", version, {"rate": f"new {version}"}, minute(version))
    return old


def get_data(client: Client, address: str, **parameters: Any) -> dict[str, Any]:
    answer = client.get(address, parameters)
    assert answer.status_code == 200, answer.content
    data: dict[str, Any] = answer.json()["data"]
    return data


def list_numbers(data: dict[str, Any]) -> list[int]:
    return [item["version"] for item in data["history"]]


def test_version_of_store_wins_over_old_service(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    data = get_data(support, API)
    assert list_numbers(data) == [5, 4, 3, 2, 1, 0]
    assert [item["entity"]["rate"][:3] for item in data["history"]] == ["new"] * 3 + ["old"] * 3
    assert [item.get("fromFallback") for item in data["history"]] == [None] * 3 + [True] * 3
    assert data["fallback"] == {"state": "answered", "olderVersionsMayBeMissing": False}
    for version, before in zip(data["history"], data["history"][1:], strict=False):
        assert version["previousVersion"] == before["version"]
        assert jsonpatch.apply_patch(before["entity"], version["diff"]) == version["entity"]
    assert data["history"][-1]["olderVersions"] is None


def test_application_timeline_has_children_of_old_service(
    application_in_both_services: OldServiceServer, store: Store, support: Client
) -> None:
    application_in_both_services.add_version(
        "R1", 0, {"fullName": "old"}, minute(1), kind=PERSON.name, application="A1"
    )
    application_in_both_services.add_version(
        "R2", 0, {"fullName": "gone"}, minute(1.5), kind=PERSON.name, application="A1"
    )
    store.add("R1", 1, {"fullName": "new"}, minute(6), entity=PERSON)
    data = get_data(support, WHOLE)
    assert [(item["id"], item["version"]) for item in data["history"]] == [
        ("R1", 1),
        ("A1", 5),
        ("A1", 4),
        ("A1", 3),
        ("A1", 2),
        ("R2", 0),
        ("R1", 0),
        ("A1", 1),
        ("A1", 0),
    ]
    state = get_data(support, "/api/v1/applications/A1/at", time=minute(2).isoformat())
    assert state["application"]["version"] == 2
    assert [item["entity"]["fullName"] for item in state["children"][PERSON.name]] == [
        "old",
        "gone",
    ]
    # One call to the old service for each answer.
    assert len(application_in_both_services.requests) == 2


def test_version_with_different_moments_in_store_and_old_service_is_shown_once(
    application_in_both_services: OldServiceServer, store: Store, support: Client
) -> None:
    application_in_both_services.add_version("A1", 4, {"rate": "old 4"}, minute(4.5))
    data = get_data(support, API)
    assert list_numbers(data) == [5, 4, 3, 2, 1, 0]
    four = data["history"][1]
    assert four["entity"] == {"rate": "new 4"}
    old_version = get_data(support, f"{API}/versions/4", updatedAt=four["fallbackUpdatedAt"])
    assert (old_version["entity"], old_version["fromFallback"]) == ({"rate": "old 4"}, True)
    page = support.get("/admin/history/product-instance/A1/").content.decode()
    assert page.count("from the old system") == 3
    assert "The old system has another time of this version" in page
    snapshot = support.get("/admin/history/product-instance/A1/versions/4/")
    assert "The old system has version 4 with another time" in read_text(snapshot)
    address, moment = "/admin/history/product-instance/A1/versions/4/", four["fallbackUpdatedAt"]
    old_page = support.get(address, {"at": moment})
    assert "This is version 4 of the old system" in read_text(old_page)
    assert "old 4" in read_text(old_page)
    store.add("A1", 4, {}, minute(4.5))  # the version is now in the store
    assert "More than one version has the number 4" in read_text(
        support.get(address, {"at": four["updatedAt"]})
    )


def test_timeline_continues_when_a_page_of_old_service_has_no_new_version_number(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    application_in_both_services.page = 1
    application_in_both_services.add_version("A1", 2, {"rate": "old twin"}, minute(2.5))
    assert list_numbers(get_data(support, API)) == [5, 4, 3, 2, 1, 0]


def test_old_service_does_not_count_as_failed_when_annals_was_too_busy_to_call_it() -> None:
    def raise_busy(subject: TimelineSubject, seconds: float) -> list[SourceRow]:
        raise BusyError

    source = sources.OldServiceSource(raise_busy, 1)
    with pytest.raises(BusyError):
        source.load_shown_timeline(ROOT, "A1")
    assert source.state is None


def test_versions_of_old_service_are_masked(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    FieldLabel.objects.create(entity="", path="/rate", russian="Ставка", sensitive=True)
    labels.forget_catalogue()
    for address in (API, f"{API}/versions/1", f"{API}/blame", WHOLE):
        assert b'"old ' not in support.get(address).content
        assert b'"new ' not in support.get(address).content
    assert masking.is_token(get_data(support, f"{API}/versions/1")["entity"]["rate"])


def is_open_to_viewer(user: object, application: Any) -> bool:
    """Hide documents with the field `vip` from every viewer: a need-to-know rule."""
    return "vip" not in (application.document or {})


@pytest.fixture
def old_service_with_rule(
    old: OldServiceServer, monkeypatch: pytest.MonkeyPatch
) -> OldServiceServer:
    """Give the old service two applications, A1 and B1, and set a rule that hides A1."""
    use_old_service(old, monkeypatch, ANNALS_NEED_TO_KNOW=f"{__name__}.is_open_to_viewer")
    old.add_version("A1", 0, {"vip": True}, minute(0))
    old.add_version("B1", 0, {"rate": "1"}, minute(0))
    return old


def test_need_to_know_rule_decides_about_documents_of_old_service(
    old_service_with_rule: OldServiceServer, support: Client
) -> None:
    old_service_with_rule.add_version(
        "R1", 0, {"fullName": "x"}, minute(0), kind=PERSON.name, application="A1"
    )
    child = "/api/v1/history/participant-role/R1"
    old_service_with_rule.add_version("A1", 2, {"vip": True}, minute(2))
    gap = f"{API}/versions/1"
    for address in (API, f"{API}/versions/0", gap, WHOLE, child, f"{child}/blame"):
        assert support.get(address).status_code == 403, address
    assert list_numbers(get_data(support, API.replace("A1", "B1"))) == [0]


def test_trace_says_that_only_old_service_has_the_version(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    address = "/api/v1/trace?entity=product-instance&id=A1&version=1"
    answer_data = support.get(address, headers={"Accept-Language": "en"}).json()["data"]
    assert (answer_data["state"], answer_data["mayBe"]) == ("unknown", None)
    assert answer_data["why"] == "Version 1 is in the old system only."


def test_child_without_known_application_is_not_shown(
    old: OldServiceServer, store: Store, support: Client
) -> None:
    old.add_version("R1", 0, {"fullName": "x"}, minute(0), kind=PERSON.name)
    answer = support.get(child := "/api/v1/history/participant-role/R1")
    assert (answer.status_code, answer.headers["X-Annals-Fallback"]) == (404, "failed")
    for minutes, application in ((1, "A1"), (2, "A2")):
        store.add("R1", 0, {}, minutes, entity=PERSON, application=application)
    assert "fallbackUpdatedAt" not in get_data(support, child)["history"][0]


def test_access_to_old_versions_is_in_journal(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    application_in_both_services.add_version("B1", 0, {"rate": "1"}, minute(0))
    get_data(support, API.replace("A1", "B1"))
    assert JournalEntry.objects.latest("id").application == "B1"


@pytest.mark.parametrize("days, calls", [(0, 1), (1, 0)])
def test_old_service_is_not_called_after_its_last_day(
    application_in_both_services: OldServiceServer,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    days: int,
    calls: int,
) -> None:
    moment = datetime.now(UTC).replace(hour=23, minute=59) + timedelta(days=days)
    monkeypatch.setattr(clock, "now", lambda: moment)
    data = get_data(support, API)
    assert len(application_in_both_services.requests) == calls
    assert ("fallback" in data) == bool(calls)


def test_calls_to_old_service_carry_bearer_token_from_token_file(
    application_in_both_services: OldServiceServer,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A new token in the file is used without a restart."""
    file = tmp_path / "token"
    file.write_text("first\n")
    file.chmod(0o600)
    use_old_service(application_in_both_services, monkeypatch, ANNALS_FALLBACK_TOKEN_FILE=str(file))
    get_data(support, API)
    file.write_text("second\n")
    get_data(support, API)
    assert application_in_both_services.tokens == ["Bearer first", "Bearer second"]


def test_old_service_is_trusted_only_when_its_certificate_authority_is_known(
    store: Store, support: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, certificate = certificates.make_certificates(tmp_path)
    store.add("A1", 1, {"rate": "new"}, minute(1))
    with OldServiceServer(certificate=certificate) as service:
        service.add_version("A1", 0, {"rate": "old"}, minute(0))
        use_old_service(service, monkeypatch)
        assert list_numbers(get_data(support, API)) == [1]
        use_old_service(service, monkeypatch, ANNALS_FALLBACK_CA_FILE=str(authority))
        assert list_numbers(get_data(support, API)) == [1, 0]


def test_second_annals_installation_can_be_the_old_service(store: Store, support: Client) -> None:
    """Annals' own API has the form that Annals expects of an old service."""
    for version in range(3):
        store.add("A1", version, '{"n": 1.50}', minute(version))
    store.add("R1", 0, "null", minute(3), entity=PERSON, type=ChangeType.DELETE, author=None)
    entity = parse_answer_page(
        support.get(API, {"pageSize": 2}).content, TimelineSubject(ROOT, "A1")
    )
    assert [(version.version, version.data) for version in entity.versions] == [
        (2, b'{"n": 1.50}'),
        (1, b'{"n": 1.50}'),
    ]
    assert entity.next_token is not None
    whole = parse_answer_page(support.get(WHOLE).content, TimelineSubject(None, "A1"))
    assert whole.versions[0] == SourceRow(
        0, minute(3), 2, "top-crm", None, "A1", b"null", "R1", PERSON, is_from_old_service=True
    )
    absent_answer = support.get(API.replace("A1", "B9"))
    assert (absent_answer.status_code, has_no_document(absent_answer.content)) == (404, True)
    wrong = support.get("/api/v1/history/car/A1")
    assert (wrong.status_code, has_no_document(wrong.content)) == (404, False)


# Pages of timelines that combine the store and the old service.


@pytest.mark.parametrize("broken", [2, 4, 6])
@pytest.mark.parametrize(
    "address, form", [(API, {}), (API, {"sort": "version", "order": "asc"}), (WHOLE, {})]
)
def test_pages_have_each_version_exactly_once_when_old_service_fails_for_one_page(
    application_in_both_services: OldServiceServer,
    store: Store,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    form: dict[str, str],
    broken: int,
) -> None:
    """The old service answers again for the next page. tests/oracle compares other sequences of
    requests."""
    # The version in the store has another moment than in the old service.
    application_in_both_services.add_version("A1", 4, {"rate": "old 4"}, minute(4.5))
    application_in_both_services.add_version(
        "R1", 0, {"fullName": "old"}, minute(1), kind=PERSON.name, application="A1"
    )
    store.add("R1", 1, {"fullName": "new"}, minute(2), entity=PERSON)
    application_in_both_services.page = 2
    whole = [
        (item["id"], item["version"]) for item in get_data(support, address, **form)["history"]
    ]
    assert len(whole) == (8 if address == WHOLE else 6)
    seen: list[tuple[str, int]] = []
    query: dict[str, Any] = {"pageSize": 1, **form}
    for page in range(1, 10):
        application_in_both_services.status = 503 if page == broken else 200
        calls.BREAKER.reset()
        data = get_data(support, address, **query)
        assert data["fallback"]["state"] == ("failed" if page == broken else "answered")
        seen += [(item["id"], item["version"]) for item in data["history"]]
        if "nextPageToken" not in data:
            break
        query["pageToken"] = data["nextPageToken"]
    assert seen == whole


@pytest.mark.parametrize("address", [API, WHOLE])
def test_version_of_old_service_is_shown_once_when_consumer_stores_it_meanwhile(
    application_in_both_services: OldServiceServer,
    store: Store,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
) -> None:
    """The consumer stores the version between the reads of the store and of the old service."""
    pending = [2]

    def store_meanwhile(name: str) -> None:
        method = getattr(TableSource, name)

        def ask(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            while pending:
                store.add("A1", pending.pop(), {"rate": "new"}, minute(2))
            return result

        monkeypatch.setattr(TableSource, name, ask)

    for name in ("fetch_page", "fetch_application_page", "fetch_keys"):
        store_meanwhile(name)
    assert list_numbers(get_data(support, address)) == [5, 4, 3, 2, 1, 0]
    assert pending == []


def test_missing_version_error_says_that_the_old_service_does_not_answer(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    application_in_both_services.status = 503
    answer = support.get(f"{API}/versions/2", headers={"Accept-Language": "en"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == (
        "version 2 of product-instance A1: not in the store; retention may have removed it; "
        "the old service does not answer, it may have more"
    )


def test_later_pages_omit_old_service_when_it_failed_for_first_page(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    application_in_both_services.status = 503
    first = get_data(support, API, pageSize=2)
    application_in_both_services.status = 200
    second = get_data(support, API, pageSize=2, pageToken=first["nextPageToken"])
    assert list_numbers(first) + list_numbers(second) == [5, 4, 3]
    assert "nextPageToken" not in second
    for page in (first, second):
        assert page["fallback"] == {"state": "failed", "olderVersionsMayBeMissing": True}
    assert list_numbers(get_data(support, API)) == [5, 4, 3, 2, 1, 0]


def test_field_history_pages_have_every_value_after_old_service_failed_for_one_page(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    first = get_data(support, f"{API}/fields", path="/rate", pageSize=2)
    application_in_both_services.status = 503
    token = first["nextPageToken"]
    second = get_data(support, f"{API}/fields", path="/rate", pageSize=2, pageToken=token)
    assert (second["values"], second["fallback"]["state"]) == ([], "failed")
    application_in_both_services.status = 200
    third = get_data(support, f"{API}/fields", path="/rate", pageToken=second["nextPageToken"])
    assert [item["value"] for item in first["values"] + third["values"]] == [
        "new 5",
        "new 4",
        "new 3",
        "old 2",
        "old 1",
        "old 0",
    ]


def test_page_token_is_accepted_after_last_day_on_which_old_service_is_asked(
    application_in_both_services: OldServiceServer, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = get_data(support, API, pageSize=2)
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(days=2))
    second = get_data(support, API, pageSize=2, pageToken=first["nextPageToken"])
    assert list_numbers(second) == [3]
    assert "nextPageToken" not in second
    assert second["fallback"]["olderVersionsMayBeMissing"] is True


def test_screen_says_that_old_service_does_not_answer(
    application_in_both_services: OldServiceServer, support: Client
) -> None:
    application_in_both_services.status = 500
    base_address = "/admin/history/product-instance/A1/"
    pages = ("", "versions/4/", "state/", "compare/?from=3&to=5")
    for address in (*(base_address + page for page in pages), "/admin/applications/A1/"):
        assert "The old system does not answer" in read_text(support.get(address))
    absent_page = support.get("/admin/history/product-instance/B9/")
    assert absent_page.status_code == 404
    assert "The old system does not answer" in read_text(absent_page)


# Need-to-know rules that decide about a document that only the old service has.

TRACE = "/api/v1/trace?entity=participant-role&id=R1&version="


@pytest.fixture
def children_of_old_applications(old_service_with_rule: OldServiceServer, store: Store) -> None:
    """Store R1 of A1 and R2 of B1. Only the old service has the two applications."""
    for id, application in (("R1", "A1"), ("R2", "B1")):
        store.add(id, 1, {"fullName": "x"}, minute(1), entity=PERSON, application=application)


def test_trace_applies_need_to_know_to_application_that_only_old_service_has(
    children_of_old_applications: None, support: Client
) -> None:
    create_quarantined_version("A1", 5)
    root = "/api/v1/trace?entity=product-instance&id=A1&version="
    for address in (f"{TRACE}1", f"{TRACE}7", f"{root}0", f"{root}5", f"{root}9"):
        assert support.get(address).status_code == 403, address
    assert support.get(f"{TRACE}1".replace("R1", "R2")).status_code == 200


@pytest.mark.parametrize("more", ["", "&archive=true"])
def test_viewer_gets_503_when_need_to_know_rule_has_no_snapshot_to_decide_on(
    store: Store,
    old: OldServiceServer,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    more: str,
) -> None:
    """The store has no snapshot of the application, and the old service fails."""
    rule = f"{__name__}.is_open_to_viewer"
    use_old_service(old, monkeypatch, ANNALS_NEED_TO_KNOW=rule, ANNALS_ARCHIVE_URL=str(tmp_path))
    old.add_version("A1", 0, {"vip": True}, minute(0))
    store.add("R1", 1, {"fullName": "x"}, minute(1), entity=PERSON, application="A1")
    child = f"/api/v1/history/participant-role/R1?pageSize=1{more}"
    assert support.get(child).status_code == 403
    create_quarantined_version("A1", 5)
    old.status = 500
    for address in (child, f"{TRACE}1", "/api/v1/trace?entity=product-instance&id=A1&version=5"):
        answer = support.get(address)
        assert answer.status_code == 503, address
        entry = JournalEntry.objects.latest("at")
        assert (entry.outcome, entry.reason) == ("failed", "need-to-know: the rule failed")
    store.add("A1", 1, {"rate": "1"}, minute(1))
    assert support.get(child).status_code == 200


def test_search_applies_need_to_know_to_application_that_only_old_service_has(
    children_of_old_applications: None, support: Client
) -> None:
    assert get_data(support, "/api/v1/search", q="R1")["results"] == []
    data = get_data(support, "/api/v1/search", q="R2")
    assert [item["id"] for item in data["results"]] == ["R2"]
    assert "fallback" not in data
