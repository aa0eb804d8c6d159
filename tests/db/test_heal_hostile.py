"""A source that is down, slow, closed, broken or hostile: nothing wrong is stored, nothing is asked
for without end, and the next run knows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import CommandError
from django.db import connection

from annals.healing import outbox_source, pace
from history.base import clock
from history.entities import ROOT
from history.gap_models import GapAnswer, GapSource
from ingest.models import Quarantined
from tests.db.healed import Healed, Outbox, closed, find, healed, noted, open_gaps, shop
from tests.db.ingested import faults, rows
from tests.db.test_fallback_hostile import cut, drip, endless, says, silent
from tests.messages import value
from tests.old_service import Hostile, OldService, send

__all__ = ["healed", "shop"]

pytestmark = pytest.mark.django_db
REST = {"gone": [], "waiting": [], "unrecorded": [], "next": None}


@pytest.fixture(autouse=True)
def _django_db_marker() -> None:
    """In place of pytest-django's, which begins a transaction: here rows are committed."""


def line(shop: Outbox, number: int, id: str = "A1") -> bytes:
    return shop.values[f"{ROOT.name}/{id}", number]


def answer(*lines: bytes, **rest: Any) -> bytes:
    return b"\n".join([*lines, json.dumps({**REST, **rest}).encode()])


def gives(*lines: bytes, **rest: Any) -> Hostile:
    return says(answer(*lines, **rest))


def missing(healed: Healed, shop: Outbox, *ids: str) -> None:
    """Of each of these the versions 2 and 3 are missing."""
    for id in ids:
        healed.brings(shop, id, 1, 4)
    find()
    assert open_gaps() == [(id, 2, 3) for id in ids]


def stored(id: str = "A1") -> list[int]:
    return [row["version"] for row in rows() if row["id"] == id]


WRONG: dict[str, Callable[[Outbox], Hostile]] = {
    "HTML": lambda _: says("<html><body>login</body></html>"),
    "one version less": lambda shop: gives(line(shop, 2)),
    "400": lambda _: says("{}", 400),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused_whole_and_asked_for_later(
    healed: Healed, shop: Outbox, name: str
) -> None:
    missing(healed, shop, "A1")
    with OldService(hostile=WRONG[name](shop)) as source:
        healed.sources(source.url)
        [done] = healed.heal(code=1)
        assert (done["wrongAnswers"], done["recovered"], done["failed"]) == (1, 0, None)
        assert stored() == [1, 4]
        assert healed.heal()[0]["documents"] == 0
        assert len(source.asked) == 1
        [known] = GapAnswer.objects.all()
        assert (known.attempts, known.detail != "") == (1, True)
        healed.heal("--again", code=1)
        assert len(source.asked) == 2
        source.hostile = gives(line(shop, 2), line(shop, 3))
        assert healed.heal("--again")[0]["recovered"] == 2
    assert open_gaps() == []
    assert GapAnswer.objects.get().next_attempt_at is None


DOWN: dict[str, Hostile] = {
    "503": says("{}", 503, Retry_After="3000"),
    "429": says("{}", 429, Retry_After="1"),
    "404": says("not here", 404),
    "a redirect": says("", 302, Location="http://127.0.0.1:1/elsewhere"),
    "slow drip": drip,
    "silent": silent,
    "cut": cut,
}


@pytest.mark.parametrize("name", DOWN)
def test_a_source_that_is_down_costs_one_attempt_and_is_asked_later(
    healed: Healed, shop: Outbox, name: str
) -> None:
    missing(healed, shop, "A1", "A2", "A3")
    with OldService(hostile=DOWN[name]) as source:
        healed.sources(source.url, seconds=0.3)
        [done] = healed.heal(code=1)
        assert (done["documents"], done["recovered"]) == (1, 0)
        assert done["failed"]
        assert len(source.asked) == 1 or name == "silent"
        [known] = GapSource.objects.all()
        assert (known.attempts, known.last_error) == (1, done["failed"])
        pause = known.next_attempt_at - clock.now()
        assert pause > timedelta(seconds=2900 if name == "503" else 25)
        assert healed.heal(code=1)[0]["later"] == known.next_attempt_at.isoformat()
        assert len(source.asked) == 1
        healed.heal("--again", code=1)
        assert GapSource.objects.get().attempts == 2
    assert stored() == [1, 4]
    assert GapAnswer.objects.count() == 0


def test_an_endless_answer_ends(
    healed: Healed, shop: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_source, "MOST_BYTES", 3_000_000)
    missing(healed, shop, "A1")
    with OldService(hostile=endless) as source:
        healed.sources(source.url)
        assert healed.heal(code=1)[0]["wrongAnswers"] == 1
    assert "3,000,000 bytes" in GapAnswer.objects.get().detail


def test_three_wrong_answers_in_a_row_are_a_broken_source(healed: Healed, shop: Outbox) -> None:
    missing(healed, shop, "A1", "A2", "A3", "A4", "A5")
    with OldService(hostile=says("<html>")) as source:
        healed.sources(source.url)
        [done] = healed.heal(code=1)
        assert (done["wrongAnswers"], len(source.asked)) == (3, 3)
        assert healed.heal(code=1)[0]["later"]


def test_a_long_answer_comes_in_pages(healed: Healed, shop: Outbox) -> None:
    healed.brings(shop, "A1", 1, 6)
    find()

    def page(handler: BaseHTTPRequestHandler) -> None:
        first = int(parse_qs(urlsplit(handler.path).query)["from"][0])
        following = {2: 4, 4: 5, 5: None}[first]
        end = following or 6
        send(
            handler, 200, answer(*(line(shop, each) for each in range(first, end)), next=following)
        )

    with OldService(hostile=page) as source:
        healed.sources(source.url)
        [done] = healed.heal()
        assert (done["documents"], done["asked"], done["recovered"]) == (1, 4, 4)
        assert len(source.asked) == 3
    assert closed() == [("A1", 2, 5, "recovered")]


def test_the_beginning_of_a_document(healed: Healed, shop: Outbox) -> None:
    moment = clock.now() - timedelta(hours=2)
    versions = [
        value(
            id="A1",
            version=number,
            type="UPDATE" if number > 1 else "CREATE",
            updatedAt=(moment + timedelta(minutes=number)).isoformat(),
            data={"createdAt": moment.isoformat()},
        )
        for number in (1, 2, 3)
    ]
    healed.ingested.write(versions[2])
    find()
    assert open_gaps() == [("A1", 0, 2)]
    with OldService(hostile=gives(*versions[:2], gone=[[0, 0]])) as source:
        healed.sources(source.url)
        assert healed.heal()[0]["recovered"] == 2
        assert open_gaps() == []
        assert closed() == [("A1", 0, 0, "expired"), ("A1", 1, 2, "recovered")]


def test_a_source_that_is_not_asked_any_more_does_not_fail(healed: Healed, shop: Outbox) -> None:
    missing(healed, shop, "A1")
    healed.sources("http://127.0.0.1:1")
    healed.heal(code=1)
    GapSource.objects.update(name="gone")
    healed.sources(shop.url)
    healed.heal()
    assert set(GapSource.objects.values_list("name", "attempts")) == {("gone", 0), ("shop", 0)}


def test_nobody_is_there(healed: Healed, shop: Outbox) -> None:
    missing(healed, shop, "A1", "A2")
    healed.sources("http://127.0.0.1:1", shop.url)
    down, up = healed.heal(code=1)
    assert (down["documents"], up["recovered"]) == (1, 4)
    assert {source for _, _, source in noted()} == {"other1"}
    assert open_gaps() == []


def test_a_wrong_token(healed: Healed, shop: Outbox) -> None:
    missing(healed, shop, "A1")
    healed.sources(shop.url, token="x" * 40)
    assert "does not accept the token" in healed.heal(code=1)[0]["failed"]
    healed.sources(shop.url, token="")
    assert "has no token" in healed.heal("--again", code=1)[0]["failed"]


def test_the_pauses_grow_and_end() -> None:
    for attempts, most in ((1, 60), (2, 120), (3, 240), (20, 21_600), (5_000, 21_600)):
        assert all(most / 2 <= pace.pause(attempts) <= most for _ in range(20))


def test_another_version_than_asked_for_is_refused_counted_and_not_asked_for_again(
    healed: Healed, shop: Outbox
) -> None:
    missing(healed, shop, "A1")
    with OldService(hostile=gives(line(shop, 2, "A2"), line(shop, 9))) as source:
        healed.sources(source.url)
        [done] = healed.heal()
        assert (done["refused"], done["quarantined"], done["recovered"]) == (2, 0, 0)
        healed.heal()
        assert len(source.asked) == 1
    assert "another version" in GapAnswer.objects.get().detail
    assert (stored("A1"), stored("A2"), Quarantined.objects.count()) == ([1, 4], [], 0)
    assert open_gaps() == [("A1", 2, 3)]


@pytest.mark.parametrize("days", [0, 20])
def test_a_source_does_not_speak_for_another_service(
    healed: Healed, shop: Outbox, days: int
) -> None:
    """Not in a message that would wait in quarantine for its day either."""
    missing(healed, shop, "A1")
    moment = (clock.now() + timedelta(days=days)).isoformat()
    changes = {"clientId": "payments", "updatedAt": moment}
    other = json.dumps({**json.loads(line(shop, 2)), **changes}).encode()
    with OldService(hostile=gives(other, line(shop, 3))) as source:
        healed.sources(source.url, client_ids=["shop"])
        [done] = healed.heal()
    assert (done["recovered"], done["refused"], done["quarantined"]) == (1, 1, 0)
    assert "client_ids" in GapAnswer.objects.get().detail
    assert stored() == [1, 3, 4]


BAD = {
    "not JSON": b"{not JSON",
    "no id": value(id=..., version=2),
    "version as a text": value(id="A1", version="2"),
    "far in the future": value(id="A1", version=2, updatedAt="2999-01-01T00:00:00"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_message_that_breaks_the_contract_is_quarantined_byte_for_byte(
    healed: Healed, shop: Outbox, name: str
) -> None:
    missing(healed, shop, "A1")
    bad = BAD[name]
    with OldService(hostile=gives(bad, line(shop, 3))) as source:
        healed.sources(source.url)
        [done] = healed.heal()
        assert (done["recovered"], done["refused"], done["quarantined"]) == (1, 1, 1)
        [held] = Quarantined.objects.all()
        assert (bytes(held.value or b""), held.entity_id) == (bad, "A1")
        assert held.reason in GapAnswer.objects.get().detail
        assert healed.heal()[0]["documents"] == 0
        # Asked for again on purpose, it is the same message.
        held.delete()
        source.hostile = gives(bad)
        healed.heal("--again")
        healed.heal("--again")
        assert Quarantined.objects.count() == 1
    assert [each for each in faults() if "are there" not in each] == []


def test_what_comes_out_of_quarantine_later_has_its_origin(
    healed: Healed, shop: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.core.management import call_command

    missing(healed, shop, "A1")
    moment = clock.now() + timedelta(days=20)
    early = value(id="A1", version=2, updatedAt=moment.isoformat())
    with OldService(hostile=gives(early, line(shop, 3))) as source:
        healed.sources(source.url)
        assert healed.heal()[0]["quarantined"] == 1
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ingest_quarantine SET value = %s", [line(shop, 2)])
    call_command("quarantine", "retry", "--now")
    assert noted() == [("A1", 2, "shop"), ("A1", 3, "shop")]
    find()
    assert closed() == [("A1", 2, 2, "recovered"), ("A1", 3, 3, "recovered")]
    assert [each for each in faults() if "are there" not in each] == []


def test_what_is_in_quarantine_is_not_asked_for(healed: Healed, shop: Outbox) -> None:
    missing(healed, shop, "A1")
    healed.ingested.write(value(id="A1", version=2, type="SAVE"))
    healed.sent += 1
    with OldService(hostile=gives(line(shop, 3))) as source:
        healed.sources(source.url)
        assert healed.heal()[0]["recovered"] == 1
        asked = parse_qs(urlsplit(source.asked[0]).query)
        assert (asked["from"], asked["to"]) == (["3"], ["3"])
        assert source.tokens[0] is not None


def test_a_message_in_quarantine_that_names_no_version_hides_none(
    healed: Healed, shop: Outbox
) -> None:
    missing(healed, shop, "A1")
    healed.ingested.write(value(id="A1", version="x"))
    assert Quarantined.objects.get().version is None
    healed.sources(shop.url)
    assert healed.heal()[0]["recovered"] == 2


def test_requests_are_no_more_than_the_source_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(pace.time, "sleep", slept.append)
    monkeypatch.setattr(pace.time, "monotonic", lambda: 7.0)
    given = pace.Pace(4)
    for _ in range(5):
        given.wait()
    assert slept == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"url": "http://shop.example/outbox"}, "url must be https://"),
        ({"url": "https://u:p@shop.example"}, "url must be https://"),
        ({"kinds": ["order"]}, "kinds has order"),
        ({"kinds": []}, "kinds or client_ids must say"),
        ({"name": "old-service"}, "name must be"),
        ({"seconds": 0}, "seconds"),
        ({"second": 1}, "source 1: second is no known field"),
        ({"url": 5}, "source 1, url must be a text, and is a whole number"),
    ],
)
def test_a_wrong_file_of_sources_is_named(
    healed: Healed, changes: dict[str, Any], sentence: str
) -> None:
    file = healed.sources("https://shop.example/outbox", kinds=[ROOT.name])
    lines = [each for each in file.read_text().splitlines() if each.split()[0] not in changes]
    file.write_text("\n".join([*lines, *(f"{k} = {json.dumps(v)}" for k, v in changes.items())]))
    with pytest.raises(CommandError, match=sentence):
        healed.heal()


def test_two_runs_at_once_ask_each_thing_once(healed: Healed, shop: Outbox) -> None:
    missing(healed, shop, "A1", "A2")
    begun, go = threading.Event(), threading.Event()

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        begun.set()
        assert go.wait(10)
        id = parse_qs(urlsplit(handler.path).query)["id"][0]
        send(handler, 200, answer(line(shop, 2, id), line(shop, 3, id)))

    with OldService(hostile=slowly) as source:
        healed.sources(source.url, seconds=20)
        found: list[Any] = []

        def other() -> None:
            try:
                found.append(healed.heal())
            finally:
                connection.close()

        first = threading.Thread(target=other)
        first.start()
        assert begun.wait(10)
        assert healed.heal() == []
        go.set()
        first.join(20)
        assert found[0][0]["recovered"] == 4
        assert len(source.asked) == 2


def test_kafka_brings_it_while_the_source_answers(healed: Healed, shop: Outbox) -> None:
    missing(healed, shop, "A1")

    def both(handler: BaseHTTPRequestHandler) -> None:
        healed.brings(shop, "A1", 2)
        send(handler, 200, answer(line(shop, 2), line(shop, 3)))

    with OldService(hostile=both) as source:
        healed.sources(source.url)
        [done] = healed.heal()
    assert (done["recovered"], done["there"]) == (1, 1)
    assert (stored(), noted()) == ([1, 2, 3, 4], [("A1", 3, "shop")])
    assert closed() == [("A1", 2, 2, "arrived"), ("A1", 3, 3, "recovered")]


def test_a_version_that_came_with_another_time_is_not_stored_twice(
    healed: Healed, shop: Outbox
) -> None:
    missing(healed, shop, "A1")
    other = json.loads(line(shop, 2))
    other["updatedAt"] = (clock.now() - timedelta(minutes=3)).isoformat()
    with OldService(hostile=gives(json.dumps(other).encode(), line(shop, 3))) as source:
        healed.sources(source.url)
        healed.brings(shop, "A1", 2)
        [done] = healed.heal()
    assert (done["recovered"], done["there"]) == (1, 1)
    assert stored() == [1, 2, 3, 4]
