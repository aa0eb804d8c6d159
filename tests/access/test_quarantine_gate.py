"""Under need-to-know, quarantine and archive reveal documents only to permitted viewers.

A rule cannot decide about an id without a stored document. For such an id, viewers under a rule get
the same bytes as for an id that never existed.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ROOT, EntityKind
from tests.access.test_masking_properties import (
    RANDOM,
    fetch_whole_answer,
    find_leaks,
    generate_addresses,
    log_in,
)
from tests.access.test_need_to_know import set_rule, store_with_hidden_application
from tests.db.ingest_rows import create_quarantined
from tests.db.store import Store, minute

__all__ = ["set_rule", "store_with_hidden_application"]

TASK = BY_NAME["product-task"]
PERSON = BY_NAME["participant-role"]
# An unknown id, as long as the ids in quarantine.
ABSENT = "Z00"
VERSION = 4711
_offsets = iter(range(1_000_000))


def quarantine(
    entity: EntityKind, id: str, version: int | None = VERSION, application: str = ""
) -> None:
    """Put a message about this document into quarantine."""
    create_quarantined(
        topic=entity.topics[0],
        offset=next(_offsets),
        entity=entity.name,
        entity_id=id,
        version=version,
        application=application,
        made_at=minute(7),
        first_seen=minute(8),
    )


def list_addresses(entity: EntityKind, id: str) -> Iterator[str]:
    """Yield the addresses of all calls and pages about one document."""
    yield from generate_addresses(entity, id, [0, VERSION], ["/rate"])
    yield f"/api/v1/trace?entity={entity.name}&id={id}&version={VERSION}"
    yield f"/api/v1/trace?entity={entity.name}&id={id}&version=0"
    yield f"/api/v1/history/{entity.name}/{id}?archive=true"
    yield f"/api/v1/history/{entity.name}/{id}?to=2001-01-01"
    yield f"/admin/client/?q={id}"
    yield f"/admin/history/{entity.name}/{id}/?as=csv"
    yield f"/admin/history/{entity.name}/{id}/newer/?since=2026-01-01T00:00:00Z"
    yield f"/admin/history/?q={id} A1"


def fetch_comparable_answer(client: Client, address: str, id: str) -> bytes:
    """Return an answer without the parts that differ between any two answers.

    These are the document's id, the request id, the times, and the tokens.
    """
    body = fetch_whole_answer(client, address)
    for pattern in (
        rb"'X-Request-ID': '\w+'",
        rb'"requestId":"\w+"',
        rb"csrfmiddlewaretoken.{1,90}",
        rb'"(completeTo|lagSeconds|retentionStart)":[^,}]*',
        rb"<time[^>]*>[^<]*</time>",
        rb"'Content-Length': '\d+'",
        rb"'Expires': '[^']*'",
        rb' d="M[^"]*"',
    ):
        body = re.sub(pattern, b"", body)
    return body.replace(id.encode(), b"<id>")


# For each hidden document: its kind, and a function that quarantines a message about its id.
HIDDEN: dict[str, tuple[EntityKind, Callable[[str], None]]] = {
    "an application with only quarantined versions": (
        ROOT,
        lambda id: quarantine(ROOT, id),
    ),
    "an application with a quarantined message without a version number": (
        ROOT,
        lambda id: quarantine(ROOT, id, None),
    ),
    "a child that names a hidden application": (
        TASK,
        lambda id: quarantine(TASK, id, application="V1"),
    ),
    "a child that names no application": (TASK, lambda id: quarantine(TASK, id)),
    "a child that names an application without a document": (
        TASK,
        lambda id: quarantine(TASK, id, application="NO-ROOT"),
    ),
    "an application that only a quarantined message of a child names": (
        ROOT,
        lambda id: quarantine(TASK, "T99", application=id),
    ),
}


@pytest.mark.parametrize("rule", ["not_vip", "count_calls"])
@pytest.mark.parametrize("case", HIDDEN)
def test_id_of_hidden_quarantined_message_is_answered_like_an_unknown_id(
    case: str, rule: str, store_with_hidden_application: Store, set_rule: Any
) -> None:
    entity, quarantine_message = HIDDEN[case]
    client = log_in("support")
    if rule == "count_calls":  # a rule that opens every application
        store_with_hidden_application.add("V1", 2, "null", 3, type=ChangeType.DELETE)
        if "a child that names a hidden" in case:
            pytest.skip("nothing is hidden")
    set_rule(rule)
    for hidden in list_addresses(entity, "H00"):
        absent = hidden.replace("H00", ABSENT)
        before = fetch_comparable_answer(client, absent, ABSENT)
        assert fetch_comparable_answer(client, hidden, "H00") == before, hidden
    quarantine_message("H00")
    for hidden in list_addresses(entity, "H00"):
        absent = hidden.replace("H00", ABSENT)
        assert fetch_comparable_answer(client, hidden, "H00") == fetch_comparable_answer(
            client, absent, ABSENT
        ), hidden


@pytest.mark.parametrize("case", HIDDEN)
def test_quarantined_message_is_shown_when_rule_of_need_to_know_is_not_set(
    case: str, store_with_hidden_application: Store
) -> None:
    """Without this test, the tests of hidden messages could pass on pages that show no messages."""
    entity, quarantine_message = HIDDEN[case]
    quarantine_message("H00")
    client = log_in("support")
    page = fetch_whole_answer(client, f"/admin/history/{entity.name}/H00/")
    searched = fetch_whole_answer(client, "/admin/history/?q=H00")
    for item in (page, searched):
        assert b"quarantine" in item


def test_search_does_not_reveal_hidden_application(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    quarantine(ROOT, "V1")
    quarantine(PERSON, "P9", application="V1")
    set_rule("not_vip")
    client = log_in("support")
    for page in ("/api/v1/search?q=", "/admin/history/?q="):
        for id in ("V1", "P9"):
            assert fetch_comparable_answer(client, page + id, id) == fetch_comparable_answer(
                client, page + ABSENT, ABSENT
            )
    reader = log_in("underwriter")
    assert str(VERSION).encode() in fetch_whole_answer(
        reader, "/admin/history/product-instance/V1/"
    )


def test_messages_of_hidden_application_are_not_shown_on_pages_of_another_application(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    """A1 is visible and V1 is hidden. One message is about a child of A1 and names V1. Another is
    about a child of V1 and names A1."""
    quarantine(PERSON, "P1", 4711, application="V1")
    quarantine(PERSON, "P9", 4712, application="A1")
    quarantine(TASK, "T9", 4713, application="A1")
    set_rule("not_vip")
    pages = [
        "/api/v1/applications/A1/history",
        "/api/v1/applications/A1/at?time=2099-01-01",
        "/admin/applications/A1/",
        "/admin/at/A1/",
        "/admin/applications/A1/?as=csv",
        "/admin/client/?q=77-0001",
        "/api/v1/history/participant-role/P1",
        "/admin/history/participant-role/P1/",
        "/api/v1/trace?entity=participant-role&id=P1&version=4711",
    ]
    support, underwriter = log_in("support"), log_in("underwriter")
    for page in pages:
        whole_answer = fetch_whole_answer(support, page)
        assert whole_answer.startswith(b"200"), page
        requested_ids = {"4711"} - {page.rpartition("=")[2]}
        # A random token in the page may contain "P9".
        answer = RANDOM.sub(b"", whole_answer)
        assert not find_leaks(answer, requested_ids | {"4712", "P9"}), page
    assert b"4713" in fetch_whole_answer(support, pages[0])
    assert b"4711" in fetch_whole_answer(underwriter, pages[0])
    assert b"4712" in fetch_whole_answer(underwriter, pages[0])


def test_permitted_viewer_sees_quarantined_create_of_application_when_only_a_child_is_stored(
    store_with_hidden_application: Store, set_rule: Any
) -> None:
    """The message of the application is in quarantine, and a version of a child is stored."""
    store_with_hidden_application.add(
        "P7", 0, {"fullName": "x"}, 2, entity=PERSON, application="NEW"
    )
    quarantine(ROOT, "NEW")
    set_rule("count_calls")
    client = log_in("support")
    assert b"4711" in fetch_whole_answer(client, "/api/v1/applications/NEW/history")
    assert b"4711" in fetch_whole_answer(client, "/admin/applications/NEW/")


def test_viewer_under_need_to_know_is_not_told_that_archive_may_have_document(
    store_with_hidden_application: Store, set_rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeArchive:
        def may_have(self, _entity: EntityKind, id: str) -> bool:
            return id == "H00"

        def find_oldest_day(self, _entity: EntityKind) -> None:
            return None

    monkeypatch.setattr("history.timeline.reader.archive.open_archive", FakeArchive)
    client = log_in("support")
    page = "/admin/history/product-instance/H00/"
    assert b"archive" in fetch_whole_answer(client, page)
    set_rule("not_vip")
    absent = page.replace("H00", ABSENT)
    assert fetch_comparable_answer(client, page, "H00") == fetch_comparable_answer(
        client, absent, ABSENT
    )
