"""The rule of need-to-know where only the old service has the document that it decides about."""

from pathlib import Path

import pytest
from django.test import Client

from annals.access.models import JournalEntry
from history.base import clock
from history.entities import ROOT
from ingest.models import Quarantined
from tests.db.replaced import use
from tests.db.store import Store, minute
from tests.db.test_fallback import PERSON, get
from tests.old_service import OldService

RULES = "tests.db.test_fallback"
pytestmark = pytest.mark.usefixtures("store")


def quarantine(kind: str, id: str, version: int) -> None:
    """A message with this version is in quarantine."""
    Quarantined.objects.create(
        topic=ROOT.topics[0],
        topic_id="t",
        partition=0,
        offset=version,
        reason="bad_updated_at",
        first_seen=clock.now(),
        entity=kind,
        entity_id=id,
        version=version,
    )


TRACE = "/api/v1/trace?entity=participant-role&id=R1&version="


def test_a_trace_asks_the_rule_about_the_old_document(
    store: Store, old: OldService, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is in the store, its application in the old service only."""
    use(old, monkeypatch, ANNALS_NEED_TO_KNOW=f"{RULES}.closed")
    old.add("A1", 0, {"vip": True}, minute(0))
    store.add("R1", 1, {"fullName": "x"}, minute(1), entity=PERSON, application="A1")
    store.add("R2", 1, {"fullName": "x"}, minute(1), entity=PERSON, application="B1")
    quarantine("product-instance", "A1", 5)
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
    rule = f"{RULES}.closed"
    use(old, monkeypatch, ANNALS_NEED_TO_KNOW=rule, ANNALS_ARCHIVE_URL=str(tmp_path))
    old.add("A1", 0, {"vip": True}, minute(0))
    store.add("R1", 1, {"fullName": "x"}, minute(1), entity=PERSON, application="A1")
    child = f"/api/v1/history/participant-role/R1?pageSize=1{more}"
    assert support.get(child).status_code == 403
    quarantine("product-instance", "A1", 5)
    old.status = 500
    for address in (child, f"{TRACE}1", "/api/v1/trace?entity=product-instance&id=A1&version=5"):
        answer = support.get(address)
        assert answer.status_code == 503, address
        entry = JournalEntry.objects.latest("at")
        assert (entry.outcome, entry.reason) == ("failed", "need-to-know: the rule failed")
    store.add("A1", 1, {"rate": "1"}, minute(1))
    assert support.get(child).status_code == 200


def test_a_search_asks_the_rule_about_the_old_document(
    store: Store, old: OldService, support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(old, monkeypatch, ANNALS_NEED_TO_KNOW=f"{RULES}.closed")
    old.add("A1", 0, {"vip": True}, minute(0))
    old.add("B1", 0, {"rate": "1"}, minute(0))
    for id, application in (("R1", "A1"), ("R2", "B1")):
        store.add(id, 1, {"fullName": "x"}, minute(1), entity=PERSON, application=application)
    assert get(support, "/api/v1/search", q="R1")["results"] == []
    found = get(support, "/api/v1/search", q="R2")
    assert [each["id"] for each in found["results"]] == ["R2"]
    assert "fallback" not in found
