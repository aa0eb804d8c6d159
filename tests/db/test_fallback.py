"""Timelines with versions that only the old service has: one history, paged exactly once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from django.test import Client

from annals.access.models import JournalEntry
from history import labels, masking
from history.base import clock
from history.entities import BY_NAME, ROOT
from history.fallback import client as calls
from history.fallback.answer import part, says_nothing_there
from history.models import FieldLabel
from history.record import ChangeType
from history.requests.worker_shares import BusyError
from history.timeline.sources import old_service as sources
from history.timeline.sources.tables import Tables
from history.versions import Subject, VersionRow
from tests.apache import certificates
from tests.db.noted import held_version
from tests.db.replaced import use
from tests.db.screens import text
from tests.db.store import Store, minute
from tests.old_service import OldService

API = "/api/v1/history/product-instance/A1"
WHOLE = "/api/v1/applications/A1/history"
PERSON = BY_NAME["participant-role"]
pytestmark = pytest.mark.usefixtures("store", "own_breaker")


@pytest.fixture
def half(store: Store, old: OldService) -> OldService:
    """A1: versions 0 to 3 in the old service, 3 to 5 in the store; 3 differs."""
    for version in range(4):
        old.add("A1", version, {"rate": f"old {version}"}, minute(version))
    for version in range(3, 6):
        store.add("A1", version, {"rate": f"new {version}"}, minute(version))
    return old


def get(client: Client, address: str, **parameters: Any) -> dict[str, Any]:
    answer = client.get(address, parameters)
    assert answer.status_code == 200, answer.content
    data: dict[str, Any] = answer.json()["data"]
    return data


def numbers(data: dict[str, Any]) -> list[int]:
    return [each["version"] for each in data["history"]]


def test_the_store_first_then_the_old_service(half: OldService, support: Client) -> None:
    data = get(support, API)
    assert numbers(data) == [5, 4, 3, 2, 1, 0]
    assert [each["entity"]["rate"][:3] for each in data["history"]] == ["new"] * 3 + ["old"] * 3
    assert [each.get("fromFallback") for each in data["history"]] == [None] * 3 + [True] * 3
    assert data["fallback"] == {"state": "answered", "olderVersionsMayBeMissing": False}
    for each, before in zip(data["history"], data["history"][1:], strict=False):
        assert each["previousVersion"] == before["version"]
        assert jsonpatch.apply_patch(before["entity"], each["diff"]) == each["entity"]
    assert data["history"][-1]["olderVersions"] is None


def test_an_application_has_its_old_children(
    half: OldService, store: Store, support: Client
) -> None:
    half.add("R1", 0, {"fullName": "old"}, minute(1), kind=PERSON.name, application="A1")
    half.add("R2", 0, {"fullName": "gone"}, minute(1.5), kind=PERSON.name, application="A1")
    store.add("R1", 1, {"fullName": "new"}, minute(6), entity=PERSON)
    data = get(support, WHOLE)
    assert [(each["id"], each["version"]) for each in data["history"]] == [
        ("R1", 1), ("A1", 5), ("A1", 4), ("A1", 3), ("A1", 2), ("R2", 0), ("R1", 0), ("A1", 1),
        ("A1", 0),
    ]  # fmt: skip
    at = get(support, "/api/v1/applications/A1/at", time=minute(2).isoformat())
    assert at["application"]["version"] == 2
    assert [each["entity"]["fullName"] for each in at["children"][PERSON.name]] == ["old", "gone"]
    assert len(half.asked) == 2  # one call for each answer


def test_another_clock_is_one_version_and_both_are_seen(
    half: OldService, store: Store, support: Client
) -> None:
    half.add("A1", 4, {"rate": "old 4"}, minute(4.5))
    data = get(support, API)
    assert numbers(data) == [5, 4, 3, 2, 1, 0]
    four = data["history"][1]
    assert four["entity"] == {"rate": "new 4"}
    other = get(support, f"{API}/versions/4", updatedAt=four["fallbackUpdatedAt"])
    assert (other["entity"], other["fromFallback"]) == ({"rate": "old 4"}, True)
    page = support.get("/admin/history/product-instance/A1/").content.decode()
    assert page.count("из прежней системы") == 3
    assert "В прежней системе у этой версии другое время" in page
    snapshot = support.get("/admin/history/product-instance/A1/versions/4/")
    assert "В прежней системе у версии 4 другое время" in text(snapshot)
    address, moment = "/admin/history/product-instance/A1/versions/4/", four["fallbackUpdatedAt"]
    theirs = support.get(address, {"at": moment})
    assert "Это версия 4 из прежней системы" in text(theirs)
    assert "old 4" in text(theirs)
    store.add("A1", 4, {}, minute(4.5))  # now it is the store's
    assert "Номер 4 есть и у другой" in text(support.get(address, {"at": four["updatedAt"]}))


def test_a_page_of_the_old_service_may_have_only_a_twin(half: OldService, support: Client) -> None:
    half.page = 1
    half.add("A1", 2, {"rate": "old twin"}, minute(2.5))
    assert numbers(get(support, API)) == [5, 4, 3, 2, 1, 0]


def test_a_question_that_is_not_asked_says_nothing_of_the_old_service() -> None:
    def busy(subject: Subject, seconds: float) -> list[VersionRow]:
        raise BusyError

    asked = sources.OldService(busy, 1)
    with pytest.raises(BusyError):
        asked.want(ROOT, "A1")
    assert asked.state is None


def test_old_versions_are_masked(half: OldService, support: Client) -> None:
    FieldLabel.objects.create(entity="", path="/rate", russian="Ставка", sensitive=True)
    labels.forget()
    for address in (API, f"{API}/versions/1", f"{API}/blame", WHOLE):
        assert b'"old ' not in support.get(address).content
        assert b'"new ' not in support.get(address).content
    assert masking.is_token(get(support, f"{API}/versions/1")["entity"]["rate"])


def closed(user: object, application: Any) -> bool:
    """A rule: documents that say `vip` are open to nobody."""
    return "vip" not in (application.document or {})


@pytest.fixture
def ruled(old: OldService, monkeypatch: pytest.MonkeyPatch) -> OldService:
    """The old service has two applications, and the rule closes A1."""
    use(old, monkeypatch, ANNALS_NEED_TO_KNOW=f"{__name__}.closed")
    old.add("A1", 0, {"vip": True}, minute(0))
    old.add("B1", 0, {"rate": "1"}, minute(0))
    return old


def test_need_to_know_is_asked_about_the_old_document(ruled: OldService, support: Client) -> None:
    ruled.add("R1", 0, {"fullName": "x"}, minute(0), kind=PERSON.name, application="A1")
    child = "/api/v1/history/participant-role/R1"
    ruled.add("A1", 2, {"vip": True}, minute(2))
    gap = f"{API}/versions/1"
    for address in (API, f"{API}/versions/0", gap, WHOLE, child, f"{child}/blame"):
        assert support.get(address).status_code == 403, address
    assert numbers(get(support, API.replace("A1", "B1"))) == [0]


def test_a_trace_names_the_old_service(half: OldService, support: Client) -> None:
    address = "/api/v1/trace?entity=product-instance&id=A1&version=1"
    found = support.get(address, headers={"Accept-Language": "en"}).json()["data"]
    assert (found["state"], found["mayBe"]) == ("unknown", None)
    assert found["why"] == "Version 1 is in the old system only."


def test_a_child_of_nobody_is_not_shown(old: OldService, store: Store, support: Client) -> None:
    old.add("R1", 0, {"fullName": "x"}, minute(0), kind=PERSON.name)
    answer = support.get(child := "/api/v1/history/participant-role/R1")
    assert (answer.status_code, answer.headers["X-Annals-Fallback"]) == (404, "failed")
    for minutes, application in ((1, "A1"), (2, "A2")):
        store.add("R1", 0, {}, minutes, entity=PERSON, application=application)
    assert "fallbackUpdatedAt" not in get(support, child)["history"][0]


def test_who_looked_is_in_the_journal(half: OldService, support: Client) -> None:
    half.add("B1", 0, {"rate": "1"}, minute(0))
    get(support, API.replace("A1", "B1"))
    assert JournalEntry.objects.latest("id").application == "B1"


@pytest.mark.parametrize("days, calls", [(0, 1), (1, 0)])
def test_after_the_end_date_it_is_never_called(
    half: OldService, support: Client, monkeypatch: pytest.MonkeyPatch, days: int, calls: int
) -> None:
    moment = datetime.now(UTC).replace(hour=23, minute=59) + timedelta(days=days)
    monkeypatch.setattr(clock, "now", lambda: moment)
    data = get(support, API)
    assert len(half.asked) == calls
    assert ("fallback" in data) == bool(calls)


def test_the_token_goes_along(
    half: OldService, support: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    file.chmod(0o600)
    use(half, monkeypatch, ANNALS_FALLBACK_TOKEN_FILE=str(file))
    get(support, API)
    file.write_text("second\n")
    get(support, API)
    assert half.tokens == ["Bearer first", "Bearer second"]


def test_it_is_believed_with_a_known_authority_only(
    store: Store, support: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority, certificate = certificates.make(tmp_path)
    store.add("A1", 1, {"rate": "new"}, minute(1))
    with OldService(certificate=certificate) as service:
        service.add("A1", 0, {"rate": "old"}, minute(0))
        use(service, monkeypatch)
        assert numbers(get(support, API)) == [1]
        use(service, monkeypatch, ANNALS_FALLBACK_CA_FILE=str(authority))
        assert numbers(get(support, API)) == [1, 0]


def test_it_reads_what_annals_itself_answers(store: Store, support: Client) -> None:
    """The old service speaks the same contract."""
    for version in range(3):
        store.add("A1", version, '{"n": 1.50}', minute(version))
    store.add("R1", 0, "null", minute(3), entity=PERSON, type=ChangeType.DELETE, author=None)
    entity = part(support.get(API, {"pageSize": 2}).content, Subject(ROOT, "A1"))
    assert [(each.version, each.data) for each in entity.versions] == [
        (2, b'{"n": 1.50}'), (1, b'{"n": 1.50}')
    ]  # fmt: skip
    assert entity.next_token is not None
    whole = part(support.get(WHOLE).content, Subject(None, "A1"))
    assert whole.versions[0] == VersionRow(
        0, minute(3), 2, "top-crm", None, "A1", b"null", "R1", PERSON, old=True
    )
    gone = support.get(API.replace("A1", "B9"))
    assert (gone.status_code, says_nothing_there(gone.content)) == (404, True)
    wrong = support.get("/api/v1/history/car/A1")
    assert (wrong.status_code, says_nothing_there(wrong.content)) == (404, False)


# Pages.


@pytest.mark.parametrize("broken", [2, 4, 6])
@pytest.mark.parametrize(
    "address, form", [(API, {}), (API, {"sort": "version", "order": "asc"}), (WHOLE, {})]
)
def test_each_version_is_on_one_page_though_the_old_service_fails_at_one(
    half: OldService, store: Store, support: Client, monkeypatch: pytest.MonkeyPatch,
    address: str, form: dict[str, str], broken: int,
) -> None:  # fmt: skip
    """It answers in pages too, and is back at the next one. All other questions: tests/oracle."""
    half.add("A1", 4, {"rate": "old 4"}, minute(4.5))  # ours is of another time
    half.add("R1", 0, {"fullName": "old"}, minute(1), kind=PERSON.name, application="A1")
    store.add("R1", 1, {"fullName": "new"}, minute(2), entity=PERSON)
    half.page = 2
    whole = [(each["id"], each["version"]) for each in get(support, address, **form)["history"]]
    assert len(whole) == (8 if address == WHOLE else 6)
    seen: list[tuple[str, int]] = []
    asked: dict[str, Any] = {"pageSize": 1, **form}
    for page in range(1, 10):
        half.status = 503 if page == broken else 200
        monkeypatch.setattr(calls, "BREAKER", calls.Breaker())
        data = get(support, address, **asked)
        assert data["fallback"]["state"] == ("failed" if page == broken else "answered")
        seen += [(each["id"], each["version"]) for each in data["history"]]
        if "nextPageToken" not in data:
            break
        asked["pageToken"] = data["nextPageToken"]
    assert seen == whole


@pytest.mark.parametrize("address", [API, WHOLE])
def test_a_version_that_the_store_gets_while_a_page_is_read(
    half: OldService,
    store: Store,
    support: Client,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
) -> None:
    """It was in both before: whichever is asked first, it is on the page once."""
    pending = [2]

    def meanwhile(name: str) -> None:
        asked = getattr(Tables, name)

        def ask(*given: Any) -> Any:
            found = asked(*given)
            while pending:
                store.add("A1", pending.pop(), {"rate": "new"}, minute(2))
            return found

        monkeypatch.setattr(Tables, name, ask)

    for name in ("page", "of_application", "keys"):
        meanwhile(name)
    assert numbers(get(support, address)) == [5, 4, 3, 2, 1, 0]
    assert pending == []


def test_what_may_be_there_is_not_called_older_than_what_is_kept(
    half: OldService, support: Client
) -> None:
    half.status = 503
    answer = support.get(f"{API}/versions/2", headers={"Accept-Language": "en"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == (
        "version 2 of product-instance A1: not in the store; retention may have removed it; "
        "the old service does not answer, it may have more"
    )


def test_pages_that_began_without_the_old_service_stay_without(
    half: OldService, support: Client
) -> None:
    half.status = 503
    first = get(support, API, pageSize=2)
    half.status = 200
    second = get(support, API, pageSize=2, pageToken=first["nextPageToken"])
    assert numbers(first) + numbers(second) == [5, 4, 3]
    assert "nextPageToken" not in second
    for page in (first, second):
        assert page["fallback"] == {"state": "failed", "olderVersionsMayBeMissing": True}
    assert numbers(get(support, API)) == [5, 4, 3, 2, 1, 0]


def test_values_of_a_field_wait_for_the_old_service(half: OldService, support: Client) -> None:
    first = get(support, f"{API}/fields", path="/rate", pageSize=2)
    half.status = 503
    token = first["nextPageToken"]
    second = get(support, f"{API}/fields", path="/rate", pageSize=2, pageToken=token)
    assert (second["values"], second["fallback"]["state"]) == ([], "failed")
    half.status = 200
    rest = get(support, f"{API}/fields", path="/rate", pageToken=second["nextPageToken"])
    assert [each["value"] for each in first["values"] + rest["values"]] == [
        "new 5", "new 4", "new 3", "old 2", "old 1", "old 0"
    ]  # fmt: skip


def test_a_token_outlives_the_end_of_the_old_service(
    half: OldService, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = get(support, API, pageSize=2)
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + timedelta(days=2))
    second = get(support, API, pageSize=2, pageToken=first["nextPageToken"])
    assert numbers(second) == [3]
    assert "nextPageToken" not in second
    assert second["fallback"]["olderVersionsMayBeMissing"] is True


def test_the_screen_says_that_versions_may_be_missing(half: OldService, support: Client) -> None:
    half.status = 500
    mine = "/admin/history/product-instance/A1/"
    pages = ("", "versions/4/", "state/", "compare/?from=3&to=5")
    for address in (*(mine + each for each in pages), "/admin/applications/A1/"):
        assert "Прежняя система не отвечает" in text(support.get(address))
    gone = support.get("/admin/history/product-instance/B9/")
    assert gone.status_code == 404
    assert "Прежняя система не отвечает" in text(gone)


# The rule where only the old service has the document that it decides about.

TRACE = "/api/v1/trace?entity=participant-role&id=R1&version="


@pytest.fixture
def children(ruled: OldService, store: Store) -> None:
    """R1 of A1 and R2 of B1 are in the store, their applications in the old service only."""
    for id, application in (("R1", "A1"), ("R2", "B1")):
        store.add(id, 1, {"fullName": "x"}, minute(1), entity=PERSON, application=application)


def test_a_trace_asks_the_rule_about_the_old_document(children: None, support: Client) -> None:
    held_version("A1", 5)
    root = "/api/v1/trace?entity=product-instance&id=A1&version="
    for address in (f"{TRACE}1", f"{TRACE}7", f"{root}0", f"{root}5", f"{root}9"):
        assert support.get(address).status_code == 403, address
    assert support.get(f"{TRACE}1".replace("R1", "R2")).status_code == 200


@pytest.mark.parametrize("more", ["", "&archive=true"])
def test_the_rule_is_not_asked_about_what_is_not_known(
    store: Store, old: OldService, support: Client, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path, more: str,
) -> None:  # fmt: skip
    """An old service that is away opens nothing; nor does an answer that is of the store alone."""
    rule = f"{__name__}.closed"
    use(old, monkeypatch, ANNALS_NEED_TO_KNOW=rule, ANNALS_ARCHIVE_URL=str(tmp_path))
    old.add("A1", 0, {"vip": True}, minute(0))
    store.add("R1", 1, {"fullName": "x"}, minute(1), entity=PERSON, application="A1")
    child = f"/api/v1/history/participant-role/R1?pageSize=1{more}"
    assert support.get(child).status_code == 403
    held_version("A1", 5)
    old.status = 500
    for address in (child, f"{TRACE}1", "/api/v1/trace?entity=product-instance&id=A1&version=5"):
        answer = support.get(address)
        assert answer.status_code == 503, address
        entry = JournalEntry.objects.latest("at")
        assert (entry.outcome, entry.reason) == ("failed", "need-to-know: the rule failed")
    store.add("A1", 1, {"rate": "1"}, minute(1))
    assert support.get(child).status_code == 200


def test_a_search_asks_the_rule_about_the_old_document(children: None, support: Client) -> None:
    assert get(support, "/api/v1/search", q="R1")["results"] == []
    found = get(support, "/api/v1/search", q="R2")
    assert [each["id"] for each in found["results"]] == ["R2"]
    assert "fallback" not in found
